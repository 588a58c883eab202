// Sends with the official Go client and consumes what it sent; prints one JSON line.
//
//	interop NAMESRV TOPIC GROUP
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const wanted = 12 // of the messages below, those with tag A or B

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func message(topic, tag, key, body string) *primitive.Message {
	found := primitive.NewMessage(topic, []byte(body)).WithTag(tag).WithKeys([]string{key})
	found.WithProperty("colour", "grün")
	return found
}

func send(namesrv []string, topic string) []string {
	p, err := rocketmq.NewProducer(producer.WithNameServer(namesrv), producer.WithGroupName("goProducer"),
		producer.WithRetry(2), producer.WithInstanceName("goProducer"))
	check(err)
	check(p.Start())
	defer func() { check(p.Shutdown()) }()
	var statuses []string
	for i := 0; i < 5; i++ {
		tag := []string{"A", "B", "C"}[i%3]
		result, err := p.SendSync(context.Background(), message(topic, tag, fmt.Sprintf("k%d", i), fmt.Sprintf("sync-%d", i)))
		check(err)
		statuses = append(statuses, fmt.Sprint(result.Status))
	}
	var wait sync.WaitGroup
	for i := 0; i < 3; i++ {
		wait.Add(1)
		check(p.SendAsync(context.Background(), func(_ context.Context, _ *primitive.SendResult, err error) {
			check(err)
			wait.Done()
		}, message(topic, "A", "async", fmt.Sprintf("async-%d", i))))
	}
	wait.Wait()
	check(p.SendOneWay(context.Background(), message(topic, "B", "oneway", "oneway-0")))
	result, err := p.SendSync(context.Background(), message(topic, "A", "b0", "batch-0"), message(topic, "C", "b1", "batch-1"),
		message(topic, "B", "b2", "batch-2"))
	check(err)
	statuses = append(statuses, fmt.Sprint(result.Status))
	for i := 0; i < 2; i++ {
		_, err = p.SendSync(context.Background(), message(topic, "A", "large", strings.Repeat("x", 20000)+fmt.Sprint(i)))
		check(err)
	}
	return statuses
}

func main() {
	rlog.SetLogLevel("error")
	namesrv, topic, group := []string{os.Args[1]}, os.Args[2], os.Args[3]
	statuses := send(namesrv, topic)
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(namesrv), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithInstance("goConsumer"))
	check(err)
	var lock sync.Mutex
	bodies := map[string]bool{}
	all := make(chan struct{})
	check(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "A || B"},
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			lock.Lock()
			defer lock.Unlock()
			for _, one := range messages {
				text := string(one.Body)
				if len(text) > 100 {
					text = fmt.Sprintf("large-%s-%d", text[len(text)-1:], len(text))
				}
				if one.GetProperty("colour") != "grün" {
					text += " without its property"
				}
				if !bodies[text] {
					bodies[text] = true
					if len(bodies) == wanted {
						close(all)
					}
				}
			}
			return consumer.ConsumeSuccess, nil
		}))
	check(c.Start())
	select {
	case <-all:
	case <-time.After(40 * time.Second):
	}
	time.Sleep(200 * time.Millisecond)
	check(c.Shutdown())
	lock.Lock()
	defer lock.Unlock()
	var got []string
	for body := range bodies {
		got = append(got, body)
	}
	sort.Strings(got)
	out, err := json.Marshal(map[string]any{"statuses": statuses, "received": got})
	check(err)
	fmt.Println(string(out))
}
