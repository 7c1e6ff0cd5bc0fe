package transfer

import "context"

// checkContext refuses a context that is none. Where it was used it would end the process, and
// leave what was begun to recovery.
func checkContext(ctx context.Context) error {
	if ctx == nil {
		return invalid("the context is nil: pass context.Background() where there is none")
	}
	return nil
}
