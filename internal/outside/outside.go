// Package outside builds programs as users of the library do: in a module of their own,
// outside of the repository, which can't import what is internal to it.
package outside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// library is the module that programs require.
const library = "github.com/mongotransfer/transfer"

// Root returns the root folder of the library: the nearest folder above the working
// folder with the library's go.mod.
func Root() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		module, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err == nil && strings.HasPrefix(string(module), "module "+library+"\n") {
			return folder, nil
		}
		above := filepath.Dir(folder)
		if above == folder {
			return "", errors.New("this is not inside of the library's repository")
		}
		folder = above
	}
}

// Copy copies the sources in a folder of the repository to another folder, without the
// tests.
func Copy(from, to string) error {
	sources, err := filepath.Glob(filepath.Join(from, "*.go"))
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("there is no program in %s", from)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		text, err := os.ReadFile(source)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, filepath.Base(source)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Build makes the folder a module that requires the library of this repository, builds
// the program in it, and returns the program's path.
// All other modules have the versions that the library is tested with.
func Build(ctx context.Context, folder string) (program string, err error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return "", err
	}
	module, err := moduleLike(root)
	if err != nil {
		return "", err
	}
	for name, text := range map[string]string{"go.mod": module, "go.sum": string(sums)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	program = filepath.Join(folder, "program")
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-o", program, ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, output)
	}
	return program, nil
}

// moduleLike returns a go.mod with the requirements of the library, and a requirement of
// the library.
func moduleLike(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", err
	}
	_, requirements, _ := strings.Cut(string(text), "\n")
	return "module example.org/program\n" + requirements +
		"\nrequire " + library + " v0.0.0\n\nreplace " + library + " => " + root + "\n", nil
}
