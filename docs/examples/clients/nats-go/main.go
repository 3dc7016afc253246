// Command due_orders stores three schedules with nats.go, receives what they fire, replaces one and ends another.
//
//	go run . nats://127.0.0.1:4222
//
// Without an argument the server is that of NATS_URL.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	url := cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL)
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, url); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}

	// Both may be repeated: a stream or consumer with the same configuration is left as it is.
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name:              "ORDERS",
		Subjects:          []string{"orders.>"},
		AllowMsgSchedules: true,
	})
	if err != nil {
		return err
	}
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "due", FilterSubject: "orders.due"})
	if err != nil {
		return err
	}

	if err := publish(ctx, js); err != nil {
		return err
	}
	if err := receive(consumer); err != nil {
		return err
	}

	// The last message on the subject of a schedule counts, so another one replaces it.
	_, err = js.Publish(ctx, "orders.schedules.report", []byte("open orders"),
		jetstream.WithScheduleCron("0 30 9 * * mon-fri"),
		jetstream.WithScheduleTimeZone("Europe/Berlin"),
		jetstream.WithScheduleTarget("orders.due"))
	if err != nil {
		return err
	}
	fmt.Println("orders.schedules.report is replaced")

	// To end a schedule, purge its subject.
	if err := stream.Purge(ctx, jetstream.WithPurgeSubject("orders.schedules.pulse")); err != nil {
		return err
	}
	fmt.Println("orders.schedules.pulse is ended")
	return nil
}

// publish stores the schedules.
func publish(ctx context.Context, js jetstream.JetStream) error {
	soon := time.Now().Add(2 * time.Second)
	_, err := js.Publish(ctx, "orders.schedules.reminder", []byte("remind of order 17"),
		jetstream.WithScheduleAt(soon), jetstream.WithScheduleTarget("orders.due"))
	if err != nil {
		return err
	}
	_, err = js.Publish(ctx, "orders.schedules.pulse", []byte("pulse"),
		jetstream.WithScheduleEvery(time.Second), jetstream.WithScheduleTarget("orders.due"))
	if err != nil {
		return err
	}

	// The same with headers, as every version of the client can write them.
	report := nats.NewMsg("orders.schedules.report")
	report.Header.Set("Nats-Schedule", "*/2 * * * * *")
	report.Header.Set("Nats-Schedule-Time-Zone", "Europe/Berlin")
	report.Header.Set("Nats-Schedule-Target", "orders.due")
	report.Data = []byte("open orders")
	_, err = js.PublishMsg(ctx, report)
	return err
}

// receive acknowledges fires until each schedule has fired, and says what fired.
func receive(consumer jetstream.Consumer) error {
	fired := map[string]string{}
	for len(fired) < 3 {
		message, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			return err
		}
		follows := "and fires again"
		if message.Headers().Get(jetstream.ScheduleNextHeader) == "purge" {
			follows = "for the last time"
		}
		fired[message.Headers().Get(jetstream.SchedulerHeader)] = fmt.Sprintf("%s, %s", message.Data(), follows)
		if err := message.Ack(); err != nil {
			return err
		}
	}
	for _, schedule := range slices.Sorted(maps.Keys(fired)) {
		fmt.Printf("%s fired: %s\n", schedule, fired[schedule])
	}
	return nil
}
