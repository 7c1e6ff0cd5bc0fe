module github.com/mongotransfer/transfer

go 1.25.0

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.mongodb.org/mongo-driver/v2 v2.9.3 // indirect
)
