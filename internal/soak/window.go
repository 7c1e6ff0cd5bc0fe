package soak

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	// windowPeriod is the time between two looks at the windows of all processes, and
	// pageLimit how long a page may take.
	windowPeriod = time.Second
	pageLimit    = 10 * time.Second
)

// windows opens the windows of the processes again and again, as those on call leave them
// open, until ctx ends. It returns how many pages were shown, and those that weren't
// although their process worked. One that is just killed or started does not answer, and
// one that waits for the server says so by 503.
func (r *run) windows(ctx context.Context) (findings []string, shown int) {
	known := map[string]bool{}
	for pause(ctx, windowPeriod); ctx.Err() == nil; pause(ctx, windowPeriod) {
		for _, s := range r.slots {
			for _, path := range []string{"", "transfers?show=unfinished", "transfers", "accounts", "account?id=" + account(0)} {
				status, whole, err := s.page(ctx, path)
				switch {
				case err != nil, status == http.StatusServiceUnavailable:
				case status == http.StatusOK && whole:
					shown++
				default:
					text := fmt.Sprintf("the window answered %d for /transfers/%s (whole: %t)", status, path, whole)
					if !known[text] {
						known[text] = true
						findings = append(findings, text)
					}
				}
			}
		}
	}
	return findings, shown
}

// page opens a page of the window of the slot's process, and reports whether it came
// whole.
func (s *slot) page(ctx context.Context, path string) (status int, whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/transfers/"+path, nil)
	if err != nil {
		return 0, false, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, strings.Contains(string(text), "</html>"), err
}
