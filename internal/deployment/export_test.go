package deployment

// MaxCompared is how many collections of one transfer Connected compares.
const MaxCompared = maxCompared
