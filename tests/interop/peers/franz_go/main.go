// Does a franz-go client's ordinary work against a server: admin, produce, consume in a group, transactions.
//
//	franz-go ADDRESS work           without transactions
//	franz-go ADDRESS transactions   commits one, rolls back one, and consumes, transforms and produces in one
//
// It prints what it saw, a line each; it ends with exit status 1 and the reason at the first error.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 200

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	address := os.Args[1]
	var err error
	switch os.Args[2] {
	case "work":
		err = work(ctx, address)
	case "transactions":
		err = transactions(ctx, address)
	default:
		err = fmt.Errorf("unknown: %s", os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(address string, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(address))...)
}

func work(ctx context.Context, address string) error {
	plain, err := client(address)
	if err != nil {
		return err
	}
	defer plain.Close()
	admin := kadm.NewClient(plain)
	created, err := admin.CreateTopics(ctx, 3, 1, nil, "orders")
	if err != nil {
		return err
	}
	if err := created["orders"].Err; err != nil {
		return err
	}
	again, err := admin.CreateTopics(ctx, 3, 1, nil, "orders")
	if err != nil {
		return err
	}
	fmt.Println("again:", again["orders"].Err)
	extended, err := admin.CreatePartitions(ctx, 1, "orders")
	if err != nil {
		return err
	}
	if err := extended["orders"].Err; err != nil {
		return err
	}
	listed, err := admin.ListTopics(ctx, "orders")
	if err != nil {
		return err
	}
	fmt.Println("partitions:", len(listed["orders"].Partitions))

	producer, err := client(address, kgo.DefaultProduceTopic("orders"), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		return err
	}
	defer producer.Close()
	for n := 0; n < records; n++ {
		text := fmt.Sprintf("%04d", n)
		record := &kgo.Record{
			Key:     []byte("k" + text),
			Value:   []byte("v" + text),
			Headers: []kgo.RecordHeader{{Key: "origin", Value: []byte("go")}},
		}
		producer.Produce(ctx, record, func(_ *kgo.Record, failed error) {
			if failed != nil {
				fmt.Fprintln(os.Stderr, "produce:", failed)
			}
		})
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	var values []string
	for _, part := range []int{records / 2, records - records/2} {
		found, err := inGroup(ctx, address, part)
		if err != nil {
			return err
		}
		values = append(values, found...)
	}
	sort.Strings(values)
	fmt.Println("values:", strings.Join(values, " "))
	lags, err := admin.Lag(ctx, "readers")
	if err != nil {
		return err
	}
	readers := lags["readers"]
	fmt.Println("group:", readers.State, readers.Lag.Total())
	ends, err := admin.ListEndOffsets(ctx, "orders")
	if err != nil {
		return err
	}
	total := int64(0)
	ends.Each(func(end kadm.ListedOffset) { total += end.Offset })
	fmt.Println("end:", total)
	if _, err := admin.DeleteGroups(ctx, "readers"); err != nil {
		return err
	}
	deleted, err := admin.DeleteTopics(ctx, "orders")
	if err != nil {
		return err
	}
	return deleted["orders"].Err
}

// inGroup joins the group, consumes so many records, commits them, and leaves.
func inGroup(ctx context.Context, address string, count int) ([]string, error) {
	member, err := client(
		address,
		kgo.ConsumerGroup("readers"),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.FetchMaxWait(200*time.Millisecond), // the first fetch may ask for a consumed partition alone
	)
	if err != nil {
		return nil, err
	}
	defer member.Close()
	var values []string
	for len(values) < count {
		fetches := member.PollRecords(ctx, count-len(values))
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			text := string(record.Value)
			if string(record.Key) == "k"+text[1:] && len(record.Headers) == 1 && string(record.Headers[0].Value) == "go" {
				values = append(values, text)
			}
		})
		if err := member.CommitRecords(ctx, fetches.Records()...); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func transactions(ctx context.Context, address string) error {
	plain, err := client(address)
	if err != nil {
		return err
	}
	defer plain.Close()
	if _, err := kadm.NewClient(plain).CreateTopics(ctx, 1, 1, nil, "in", "out"); err != nil {
		return err
	}
	writer, err := client(address, kgo.TransactionalID("writer"), kgo.DefaultProduceTopic("in"))
	if err != nil {
		return err
	}
	defer writer.Close()
	for _, turn := range []struct {
		prefix string
		end    kgo.TransactionEndTry
	}{{"a", kgo.TryCommit}, {"b", kgo.TryAbort}, {"c", kgo.TryCommit}} {
		if err := writer.BeginTransaction(); err != nil {
			return err
		}
		for n := 0; n < 10; n++ {
			record := kgo.StringRecord(fmt.Sprintf("%s%d", turn.prefix, n))
			if err := writer.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		if err := writer.EndTransaction(ctx, turn.end); err != nil {
			return err
		}
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(address),
		kgo.TransactionalID("transformer"),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumerGroup("transformers"),
		kgo.ConsumeTopics("in"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RequireStableFetchOffsets(),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for done := 0; done < 20; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			to := &kgo.Record{Topic: "out", Value: append(record.Value, '!')}
			if err := session.ProduceSync(ctx, to).FirstErr(); err != nil {
				return err
			}
			done++
		}
		if _, err := session.End(ctx, kgo.TryCommit); err != nil {
			return err
		}
	}
	reader, err := client(
		address,
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeTopics("out"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer reader.Close()
	var values []string
	for len(values) < 20 {
		fetches := reader.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	fmt.Println("committed:", strings.Join(values, " "))
	lags, err := kadm.NewClient(plain).Lag(ctx, "transformers")
	if err != nil {
		return err
	}
	readers := lags["transformers"]
	fmt.Println("lag:", readers.Lag.Total())
	return nil
}
