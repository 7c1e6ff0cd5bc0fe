package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// confirm asks whether to do what changes data. Where nobody can be asked, --yes has to
// say it. It waits for the answer no longer than ctx lasts: an interrupt is a no.
func (p *program) confirm(ctx context.Context, format string, args ...any) error {
	if p.flags.yes {
		return nil
	}
	what := printable(fmt.Sprintf(format, args...))
	if !p.asks {
		return usage("this changes data: %s. Nobody can be asked here, so say --yes", what)
	}
	_, _ = fmt.Fprintf(p.err, "%s\nGo on? Type yes: ", what)
	answers := make(chan string, 1)
	go func() {
		answer, _ := bufio.NewReader(p.in).ReadString('\n') // whatever ends it: a part of "yes" is none
		answers <- answer
	}()
	answer := ""
	select {
	case answer = <-answers:
	case <-ctx.Done():
	}
	if strings.TrimSpace(answer) == "yes" && ctx.Err() == nil {
		return nil
	}
	if !strings.HasSuffix(answer, "\n") {
		_, _ = fmt.Fprintln(p.err)
	}
	return ErrDeclined
}
