package main

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks whether to do what changes data. Where nobody can be asked, --yes has to
// say it.
func (p *program) confirm(format string, args ...any) error {
	if p.flags.yes {
		return nil
	}
	what := clean(fmt.Sprintf(format, args...))
	if !p.asks {
		return usage("this changes data: %s. Nobody can be asked here, so say --yes", what)
	}
	_, _ = fmt.Fprintf(p.err, "%s\nGo on? Type yes: ", what)
	answer, err := bufio.NewReader(p.in).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	if err != nil {
		_, _ = fmt.Fprintln(p.err)
	}
	return ErrDeclined
}
