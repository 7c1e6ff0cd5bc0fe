package mongotest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

const (
	// engineLimit is how long a Docker engine may take to answer.
	engineLimit = 3 * time.Second
	// containerLimit is how long it may take to compile the program, and to pull and
	// start the image.
	containerLimit = 5 * time.Minute
)

// startContainer runs a server in Docker, with the program in the folder container.
func startContainer(ctx context.Context) (*Server, error) {
	engine, err := findEngine(ctx)
	if err != nil {
		return nil, err
	}
	folder, err := containerFolder()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, containerLimit)
	defer cancel()

	fmt.Fprintln(os.Stderr, "mongotest: starting a server in Docker; the first time this takes a while")
	uri, log := firstLine{read: make(chan string, 1)}, bytes.Buffer{}
	cmd := containerCommand(folder, engine)
	cmd.Stdout, cmd.Stderr = &uri, &log
	process, err := startChild(cmd)
	if err != nil {
		return nil, err
	}
	server, err := awaitContainer(ctx, process, uri.read)
	if err != nil {
		err = errors.Join(err, process.stop())
		return nil, fmt.Errorf("%w\n%s", err, log.Bytes())
	}
	return server, nil
}

// awaitContainer initiates the container's replica set once the program has printed its
// URI.
func awaitContainer(ctx context.Context, process *child, printed <-chan string) (*Server, error) {
	select {
	case uri := <-printed:
		set := member{uri: uri, host: "127.0.0.1:27017"}
		if err := set.initiate(ctx, process.ended); err != nil {
			return nil, err
		}
		return newServer(uri, process.stop), nil
	case <-process.ended:
		return nil, errors.New("the container did not start")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// containerCommand returns the command that keeps a container running until its standard
// input ends.
func containerCommand(folder, engine string) *exec.Cmd {
	args := append([]string{"run", ".", image(), "mongod", "--bind_ip_all"}, memberFlags()...)
	cmd := exec.Command("go", args...)
	cmd.Dir = folder
	// The program must be built from its own go.mod alone, not from the caller's.
	cmd.Env = append(os.Environ(), "DOCKER_HOST="+engine, "GOWORK=off", "GOFLAGS=-mod=readonly")
	return cmd
}

// image returns the name of the image: MONGO_IMAGE, or else the image of the version that
// is asked for.
func image() string {
	if image := os.Getenv("MONGO_IMAGE"); image != "" {
		return image
	}
	return "mongo:" + cmp.Or(wantedVersion(), "6.0")
}

// containerFolder returns the folder of the program's source, which is beside this file.
func containerFolder() (string, error) {
	_, file, _, _ := runtime.Caller(0)
	folder := filepath.Join(filepath.Dir(file), "container")
	if _, err := os.Stat(filepath.Join(folder, "go.mod")); err != nil {
		return "", fmt.Errorf("the source of the program that runs a container is not here: %w", err)
	}
	return folder, nil
}

// findEngine returns the address of a Docker engine that answers.
// It asks with the standard library alone, before anything else happens.
// Compiling the program takes time, and a client of Docker may hang on a socket that
// accepts a connection and never answers.
func findEngine(ctx context.Context) (string, error) {
	hosts := []string{
		"unix:///var/run/docker.sock",
		"unix://" + os.Getenv("XDG_RUNTIME_DIR") + "/docker.sock",
		"unix://" + os.Getenv("HOME") + "/.docker/run/docker.sock",
	}
	if host := os.Getenv("DOCKER_HOST"); host != "" {
		hosts = []string{host}
	}
	var failed error
	for _, host := range hosts {
		err := ping(ctx, host)
		if err == nil {
			return host, nil
		}
		failed = errors.Join(failed, fmt.Errorf("no engine answers at %s: %w", host, err))
	}
	return "", failed
}

func ping(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, engineLimit)
	defer cancel()
	address, err := url.Parse(host)
	if err != nil {
		return err
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if address.Scheme == "unix" {
			return (&net.Dialer{}).DialContext(ctx, "unix", address.Path)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address.Host)
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker/_ping", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

// firstLine reads a process's output, sends the first line, and drops the rest.
type firstLine struct {
	line []byte
	sent bool
	read chan string // has room for the line
}

// Write implements io.Writer.
// It never fails and never blocks.
func (f *firstLine) Write(p []byte) (int, error) {
	if f.sent {
		return len(p), nil
	}
	f.line = append(f.line, p...)
	if line, _, found := bytes.Cut(f.line, []byte("\n")); found {
		f.read <- string(line)
		f.sent = true
	}
	return len(p), nil
}
