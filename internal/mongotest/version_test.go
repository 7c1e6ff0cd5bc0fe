package mongotest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// The requested version is the one that answers. Tests for 5.0 that run on 6.0 would
// prove nothing.
func TestVersionAskedForAnswers(t *testing.T) {
	var reply struct {
		Version string `bson:"version"`
	}
	command := bson.D{{Key: "buildInfo", Value: 1}}
	require.NoError(t, Client(t).Database("admin").RunCommand(t.Context(), command).Decode(&reply))
	assert.Equal(t, reply.Version, testServer.Version())
	if wanted := os.Getenv("MONGODB_VERSION"); wanted != "" {
		assert.Regexp(t, `^`+wanted+`(\.|$)`, reply.Version)
	}
}

// A series stands for each of its versions, and a version for itself alone.
func TestWantedVersion(t *testing.T) {
	tests := []struct {
		wanted, version string
		fits            bool
	}{
		{"", "5.0.32", true},
		{"5.0", "5.0.32", true},
		{"5.0.32", "5.0.32", true},
		{"5.0.3", "5.0.32", false},
		{"5", "5.0.32", true},
		{"5", "50.0.1", false},
		{"6.0", "5.0.32", false},
		{"8.0", "8.0.0-rc1", true},
	}
	for _, test := range tests {
		t.Setenv("MONGODB_VERSION", test.wanted)
		assert.Equal(t, test.fits, checkWanted(test.version) == nil, "%+v", test)
	}
}

// A server of another version than requested is refused, wherever it comes from:
// MONGODB_URI, the PATH, or a mongod that reports the wanted version and has another one.
// A version that isn't available is an error that names the available ones.
func TestOtherVersionIsRefused(t *testing.T) {
	uri := URI()
	real, err := findMongod(t.Context())
	require.NoError(t, err)
	onBareMachine(t)
	t.Setenv("MONGODB_VERSION", "9.7.5")

	t.Setenv("MONGODB_URI", uri)
	_, err = Start(t.Context())
	require.ErrorContains(t, err, "MONGODB_VERSION asks for 9.7.5")

	t.Setenv("MONGODB_URI", "")
	writeScript(t, "mongod", `echo "db version v6.0.5"`)
	_, err = Start(t.Context())
	require.ErrorContains(t, err, "a mongod on the PATH")
	require.ErrorContains(t, err, "it is version 6.0.5, and MONGODB_VERSION asks for 9.7.5")
	require.ErrorContains(t, err, "asks for 9.7.5, and what can be fetched is 6.0.5, 6.0.27, 5.0.32")

	writeScript(t, "mongod", `[ "$1" = --version ] && echo "db version v9.7.5" && exit 0; exec `+real+` "$@"`)
	_, err = Start(t.Context())
	require.ErrorContains(t, err, testServer.Version()+", and MONGODB_VERSION asks for 9.7.5")
}

// The version chooses the image, unless one is named.
func TestImage(t *testing.T) {
	t.Setenv("MONGO_IMAGE", "")
	t.Setenv("MONGODB_VERSION", "")
	assert.Equal(t, "mongo:6.0", image())
	t.Setenv("MONGODB_VERSION", "8.0")
	assert.Equal(t, "mongo:8.0", image())
	t.Setenv("MONGO_IMAGE", "own/mongo:1")
	assert.Equal(t, "own/mongo:1", image())
}

// Several processes that fetch a mongod at once get a complete one.
// A folder that another process has put there is left as it is.
func TestKeepReady(t *testing.T) {
	cache := t.TempDir()
	kept := filepath.Join(cache, "mongod-1.2.3")
	var group sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		folder := filepath.Join(cache, name)
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "mongod"), []byte(name), 0o600))
		group.Go(func() { assert.NoError(t, keepReady(folder, kept)) })
	}
	group.Wait()
	assert.FileExists(t, filepath.Join(kept, "mongod"))
	assert.Error(t, keepReady(filepath.Join(cache, "missing"), filepath.Join(cache, "other")))
}

// The hash is that of the System V ABI, as found in programs that are known to run.
func TestSymbolHash(t *testing.T) {
	assert.Equal(t, []byte{0xa6, 0x05, 0x79, 0x07}, symbolHash("printf"))
	assert.Equal(t, []byte{0x75, 0x1a, 0x69, 0x09}, symbolHash("GLIBC_2.2.5"))
	assert.Equal(t, []byte{0xe3, 0x42, 0x4a, 0x04}, symbolHash("CURL_OPENSSL_3"))
}

// A file that is not a program, or can't be made to run, is an error.
func TestNewerCurlForNoProgram(t *testing.T) {
	text := filepath.Join(t.TempDir(), "mongod")
	require.NoError(t, os.WriteFile(text, []byte("not a program"), 0o600))
	require.Error(t, askForNewerCurl(text))
}
