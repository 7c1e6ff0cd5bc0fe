package transfer

// unsupported is the store's error of a deployment that is not fit, under its public name. The store
// says so in the same words: they are told once.
type unsupported struct{ error }

// Unwrap returns the public error and the store's.
func (e unsupported) Unwrap() []error { return []error{ErrUnsupportedDeployment, e.error} }
