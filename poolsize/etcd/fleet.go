package etcd

import (
	"cmp"
	"strings"

	"github.com/quotient-go/quotient"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// key is what counts of a key of the fleet.
type key struct {
	created, modified int64 // revisions
	lease             clientv3.LeaseID
	replica           bool // it stands for one
}

// fleet is what a watcher knows of the keys under a prefix. It is a pure state: keys in, pools out.
type fleet struct {
	prefix   string
	held     held
	revision int64          // of the listing
	keys     map[string]key // by what follows the prefix, those that stand for no replica too
	replicas int            // how many of them do
	own      key            // this replica's; the zero value if it is not there
	older    int            // how many of them were made before it; right while it is there
}

func newFleet(prefix string, held held, revision int64) *fleet {
	return &fleet{prefix: prefix, held: held, revision: revision, keys: map[string]key{}}
}

func (f *fleet) learn(events []*clientv3.Event) {
	for _, e := range events {
		if e.Type == clientv3.EventTypeDelete {
			f.drop(strings.TrimPrefix(string(e.Kv.Key), f.prefix))
		} else {
			f.put(e.Kv)
		}
	}
}

// put takes in a key. It stands for a replica if it has a lease, so that it cannot stay for ever. Its name
// has no slash, or it belongs to a fleet whose prefix begins alike. The value does not matter: a version that
// is not known yet is a replica too.
func (f *fleet) put(kv *mvccpb.KeyValue) {
	name := strings.TrimPrefix(string(kv.Key), f.prefix)
	f.drop(name)
	k := key{created: kv.CreateRevision, modified: kv.ModRevision, lease: clientv3.LeaseID(kv.Lease)}
	k.replica = k.lease != 0 && name != "" && !strings.Contains(name, "/")
	f.keys[name] = k
	if !k.replica {
		return
	}
	f.replicas++
	if name == f.held.name {
		f.own, f.older = k, 0
		for other, o := range f.keys {
			if o.replica && f.before(other, o) {
				f.older++
			}
		}
	} else if f.before(name, k) {
		f.older++
	}
}

func (f *fleet) drop(name string) {
	k := f.keys[name]
	delete(f.keys, name)
	if !k.replica {
		return
	}
	f.replicas--
	if name == f.held.name {
		f.own = key{}
	} else if f.before(name, k) {
		f.older--
	}
}

// before reports whether a replica was made before this one. Keys that were made in one transaction have one
// revision.
func (f *fleet) before(name string, k key) bool {
	return cmp.Or(cmp.Compare(k.created, f.own.created), cmp.Compare(name, f.held.name)) < 0
}

// present reports whether this replica is in the fleet, by the lease that it renews.
func (f *fleet) present() bool {
	return f.own.replica && f.own.lease == f.held.lease
}

// pool returns the pool. This replica is in the fleet.
func (f *fleet) pool() quotient.Pool {
	return quotient.Pool{Replicas: f.replicas, Ordinal: f.older + 1}
}

// newest returns the last revision that changed a key that is there. With the number of keys it tells one
// state of the fleet from all later ones. A later change has a higher revision, or else leaves fewer keys.
func (f *fleet) newest() (revision int64) {
	for _, k := range f.keys {
		revision = max(revision, k.modified)
	}
	return revision
}
