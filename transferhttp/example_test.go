package transferhttp_test

import (
	"log"
	"net/http"
	"os"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/mongotransfer/transfer"
	"github.com/mongotransfer/transfer/transferhttp"
)

// The window is mounted on an address that only operators reach, beside the service's
// own.
func ExampleHandler() {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("MONGODB_URI")))
	if err != nil {
		log.Fatal(err)
	}
	recorder := transferhttp.NewRecorder()
	coord, err := transfer.NewCoordinator(client.Database("bank"),
		transfer.WithObserver(recorder.Observer(transfer.Observer{}))) // or the observer of transferotel
	if err != nil {
		log.Fatal(err)
	}
	window := transferhttp.Handler(coord, transferhttp.WithRecorder(recorder))

	admin := http.NewServeMux()
	admin.Handle("/transfers/", http.StripPrefix("/transfers", window))
	log.Fatal(http.ListenAndServe("localhost:8081", admin))
}
