// Producers and consumers of the official Go client, driven line by line.
//
//	actor NAMESRV
//
// A line is a verb and words key=value, separated by tabs; each is answered by one JSON line. The functions named as the verbs say what they take.
// The end of standard input stops all.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type options map[string]string

func (o options) number(key string) int {
	found, err := strconv.Atoi(o[key])
	if err != nil {
		return 0
	}
	return found
}

type closing interface{ Shutdown() error }

type actor struct {
	namesrv       []string
	producers     map[string]rocketmq.Producer
	transactional map[string]rocketmq.TransactionProducer
	running       map[string]closing
	lock          sync.Mutex
	received      map[string][]map[string]any
}

func (a *actor) note(name string, message *primitive.MessageExt) {
	a.lock.Lock()
	defer a.lock.Unlock()
	text := string(message.Body)
	if len(text) > 100 {
		text = fmt.Sprintf("%s...%d", text[:10], len(text))
	}
	a.received[name] = append(a.received[name], map[string]any{
		"topic": message.Topic, "body": text, "tag": message.GetTags(), "keys": message.GetKeys(), "msgId": message.MsgId,
		"queueId": message.Queue.QueueId, "offset": message.QueueOffset, "reconsumeTimes": message.ReconsumeTimes,
		"born": message.BornTimestamp, "stored": message.StoreTimestamp, "properties": message.GetProperties(),
	})
}

// state is what a body says of its transaction: commit, rollback or unknown, at first or when it is checked, as in "unknown commit".
func state(body string, place int) primitive.LocalTransactionState {
	words := strings.FieldsFunc(body, func(one rune) bool { return one == ' ' || one == '-' })
	if place >= len(words) {
		place = len(words) - 1
	}
	switch words[place] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

type listener struct {
	actor *actor
	name  string
}

func (l listener) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return state(string(message.Body), 0)
}

func (l listener) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	l.actor.note(l.name, message)
	return state(string(message.Body), 1)
}

func (a *actor) traced() *primitive.TraceConfig {
	return &primitive.TraceConfig{GroupName: "goTracer", NamesrvAddrs: a.namesrv, Access: primitive.Local}
}

func account(o options) primitive.Credentials {
	return primitive.Credentials{AccessKey: o["access"], SecretKey: o["secret"]}
}

// producer name [kind=transaction] [ns] [trace] [access secret] [by=hash: of the sharding key]; `received` is what a transactional one was asked about.
func (a *actor) producer(o options) (any, error) {
	name := o["name"]
	with := []producer.Option{producer.WithNameServer(a.namesrv), producer.WithGroupName(name), producer.WithInstanceName(name),
		producer.WithSendMsgTimeout(10 * time.Second), producer.WithNamespace(o["ns"])}
	if o["trace"] != "" {
		with = append(with, producer.WithTrace(a.traced()))
	}
	if o["access"] != "" {
		with = append(with, producer.WithCredentials(account(o)))
	}
	if o["by"] == "hash" {
		with = append(with, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	if o["kind"] == "transaction" {
		found, err := rocketmq.NewTransactionProducer(listener{a, name}, with...)
		if err != nil {
			return nil, err
		}
		a.transactional[name], a.running[name] = found, found
		return "ok", found.Start()
	}
	found, err := rocketmq.NewProducer(with...)
	if err != nil {
		return nil, err
	}
	a.producers[name], a.running[name] = found, found
	return "ok", found.Start()
}

func message(o options, number int) *primitive.Message {
	body := fmt.Sprintf("%s-%d", o["body"], number)
	if size := o.number("size"); size > len(body) {
		body += strings.Repeat("x", size-len(body))
	}
	found := primitive.NewMessage(o["topic"], []byte(body))
	if tags := strings.Split(o["tags"], ","); o["tags"] != "" {
		found.WithTag(tags[number%len(tags)])
	}
	if o["key"] != "" {
		found.WithKeys([]string{fmt.Sprintf("%s-%d", o["key"], number)})
	}
	if o["shard"] != "" {
		found.WithShardingKey(o["shard"])
	}
	for key, value := range o {
		if strings.HasPrefix(key, "property.") {
			found.WithProperty(strings.TrimPrefix(key, "property."), value)
		}
	}
	if level := o.number("delay"); level > 0 {
		found.WithDelayTimeLevel(level)
	}
	return found
}

// send name topic body [mode=sync|async|oneway|batch|transaction|request] [count] [size] [tags=a,b] [key] [delay] [property.X=...].
func (a *actor) send(o options) (any, error) {
	background, name := context.Background(), o["name"]
	messages := []*primitive.Message{message(o, 0)}
	for number := 1; number < o.number("count"); number++ {
		messages = append(messages, message(o, number))
	}
	ids := []string{}
	sent := func(result *primitive.SendResult, err error) error {
		if err != nil {
			return err
		}
		if result.Status != primitive.SendOK {
			return fmt.Errorf("status %d", result.Status)
		}
		ids = append(ids, result.MsgID)
		return nil
	}
	if o["mode"] == "batch" {
		result, err := a.producers[name].SendSync(background, messages...)
		return ids, sent(result, err)
	}
	for _, one := range messages {
		var err error
		switch o["mode"] {
		case "async":
			done := make(chan error, 1)
			err = a.producers[name].SendAsync(background, func(_ context.Context, result *primitive.SendResult, failure error) {
				done <- sent(result, failure)
			}, one)
			if err == nil {
				err = <-done
			}
		case "oneway":
			err = a.producers[name].SendOneWay(background, one)
		case "transaction":
			var result *primitive.TransactionSendResult
			if result, err = a.transactional[name].SendMessageInTransaction(background, one); err == nil {
				err = sent(result.SendResult, nil)
			}
		case "request":
			var answer *primitive.Message
			if answer, err = a.producers[name].Request(background, 20*time.Second, one); err == nil {
				ids = append(ids, string(answer.Body))
			}
		default:
			err = sent(a.producers[name].SendSync(background, one))
		}
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// push name group topic [instance: a producer's, which then is known to brokers at once] [tags | sql] [model=broadcasting] [listener=orderly] [fail: so many times] [level: of what fails] [tries] [answerer: a producer] [ns] [trace] [access secret].
func (a *actor) push(o options) (any, error) {
	name, instance, isOrderly := o["name"], o["instance"], o["listener"] == "orderly"
	if instance == "" {
		instance = name
	}
	with := []consumer.Option{consumer.WithNameServer(a.namesrv), consumer.WithGroupName(o["group"]), consumer.WithInstance(instance),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(isOrderly)}
	if o["model"] == "broadcasting" {
		with = append(with, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if tries := o.number("tries"); tries > 0 {
		with = append(with, consumer.WithMaxReconsumeTimes(int32(tries)))
	}
	if o["trace"] != "" {
		with = append(with, consumer.WithTrace(a.traced()))
	}
	if o["access"] != "" {
		with = append(with, consumer.WithCredentials(account(o)))
	}
	found, err := rocketmq.NewPushConsumer(append(with, consumer.WithNamespace(o["ns"]))...)
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if o["tags"] != "" {
		selector.Expression = o["tags"]
	}
	if o["sql"] != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: o["sql"]}
	}
	failures := int32(o.number("fail"))
	err = found.Subscribe(o["topic"], selector, func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if atomic.AddInt32(&failures, -1) >= 0 {
			if isOrderly {
				return consumer.SuspendCurrentQueueAMoment, nil
			}
			if concurrent, is := primitive.GetConcurrentlyCtx(ctx); is && o["level"] != "" {
				concurrent.DelayLevelWhenNextConsume = o.number("level")
			}
			return consumer.ConsumeRetryLater, nil
		}
		for _, one := range messages {
			a.note(name, one)
			if o["answerer"] != "" {
				if err := a.answer(o["answerer"], one); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	if err != nil {
		return nil, err
	}
	a.running[name] = found
	return "ok", found.Start()
}

// pull name group topic [tags]; what is polled is acknowledged, and is `taken`.
func (a *actor) pull(o options) (any, error) {
	name := o["name"]
	found, err := rocketmq.NewPullConsumer(consumer.WithNameServer(a.namesrv), consumer.WithGroupName(o["group"]), consumer.WithInstance(name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	if o["tags"] != "" {
		selector.Expression = o["tags"]
	}
	if err = found.Subscribe(o["topic"], selector); err != nil {
		return nil, err
	}
	if err = found.Start(); err != nil {
		return nil, err
	}
	background, end := context.WithCancel(context.Background())
	a.running[name] = polling{found, end}
	go func() {
		for background.Err() == nil {
			request, err := found.Poll(background, time.Second)
			if err != nil {
				continue
			}
			for _, one := range request.GetMsgList() {
				a.note(name, one)
			}
			found.ACK(background, request, consumer.ConsumeSuccess)
		}
	}()
	return "ok", nil
}

type polling struct {
	rocketmq.PullConsumer
	end context.CancelFunc
}

func (p polling) Shutdown() error {
	p.end()
	return p.PullConsumer.Shutdown()
}

// topics [create | delete]: make or delete a topic on the broker `at`; all topics.
func (a *actor) topics(o options) (any, error) {
	tool, err := admin.NewAdmin(admin.WithResolver(primitive.NewPassthroughResolver(a.namesrv)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = tool.Close() }()
	background := context.Background()
	if o["create"] != "" {
		err = tool.CreateTopic(background, admin.WithTopicCreate(o["create"]), admin.WithBrokerAddrCreate(o["at"]),
			admin.WithReadQueueNums(2), admin.WithWriteQueueNums(2))
	}
	if o["delete"] != "" {
		err = tool.DeleteTopic(background, admin.WithTopicDelete(o["delete"]), admin.WithBrokerAddrDelete(o["at"]), admin.WithNameSrvAddr(a.namesrv))
	}
	if err != nil {
		return nil, err
	}
	found, err := tool.FetchAllTopicList(background)
	if err != nil {
		return nil, err
	}
	return found.TopicList, nil
}

// answer sends a request's body back; the client's CreateReplyMessage reads the body it is given as properties.
func (a *actor) answer(name string, request *primitive.MessageExt) error {
	reply, err := consumer.CreateReplyMessage(request, nil)
	if err != nil {
		return err
	}
	reply.Body = append(request.Body, '!')
	_, err = a.producers[name].SendSync(context.Background(), reply)
	return err
}

// taken name: what a consumer got, or a producer was asked, since the last call.
func (a *actor) taken(o options) (any, error) {
	a.lock.Lock()
	defer a.lock.Unlock()
	found := a.received[o["name"]]
	a.received[o["name"]] = nil
	if found == nil {
		found = []map[string]any{}
	}
	return found, nil
}

// stop name: shut a producer or consumer down.
func (a *actor) stop(o options) (any, error) {
	found, is := a.running[o["name"]]
	if !is {
		return nil, fmt.Errorf("nobody is called %s", o["name"])
	}
	delete(a.running, o["name"])
	return "ok", found.Shutdown()
}

func main() {
	rlog.SetLogLevel("error")
	a := &actor{
		namesrv: []string{os.Args[1]}, producers: map[string]rocketmq.Producer{},
		transactional: map[string]rocketmq.TransactionProducer{}, running: map[string]closing{}, received: map[string][]map[string]any{},
	}
	verbs := map[string]func(options) (any, error){
		"producer": a.producer, "send": a.send, "push": a.push, "pull": a.pull, "topics": a.topics, "taken": a.taken, "stop": a.stop,
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Split(lines.Text(), "\t")
		given := options{}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			given[key] = value
		}
		answer := map[string]any{}
		if verb, is := verbs[words[0]]; !is {
			answer["error"] = "unknown verb " + words[0]
		} else if result, err := verb(given); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["result"] = result
		}
		out, err := json.Marshal(answer)
		if err != nil {
			out = []byte(`{"error":"not to be written as JSON"}`)
		}
		fmt.Println(string(out))
	}
	for _, one := range a.running {
		_ = one.Shutdown()
	}
}
