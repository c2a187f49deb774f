package lease

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// TestSelfFencing stops a leader's clock past its time, with no request that comes.
func TestSelfFencing(t *testing.T) {
	for _, look := range []struct {
		name  string
		leads func(s *Server) bool
	}{
		{"Leads", func(s *Server) bool { leads, _ := s.Leads(); return leads }},
		{"Stats", func(s *Server) bool { return s.Stats().Leads }},
		{"TokensLeft", func(s *Server) bool { return s.TokensLeft() > 0 }},
		{"acquire", func(s *Server) bool {
			_, err := s.acquire(context.Background(),
				ask{peer: 1, semaphore: "A", count: 1, expiresIn: unchanged})
			return err == nil
		}},
		{"Extend", func(s *Server) bool { return s.Extend(time.Time{}) == nil }},
		{"AddTokens", func(s *Server) bool { return s.AddTokens(Tokens{1, 2}) == nil }},
		{"Break", func(s *Server) bool { _, err := s.Break(1, "A", 1); return errors.Is(err, ErrNotHeld) }},
		{"Locks", func(s *Server) bool { _, _, err := s.Locks("A", 1); return err == nil }},
	} {
		t.Run(look.name, func(t *testing.T) {
			inServer(t, "A=1", func(t *testing.T, s *Server) {
				until := time.Now().Add(time.Minute)
				must(t, s.Extend(until))
				time.Sleep(time.Minute - 1)
				s.timer.Stop() // as if the process had been stopped
				if !look.leads(s) {
					t.Error("it does not lead, before its time has passed")
				}
				must(t, s.Extend(until))
				s.timer.Stop()
				if time.Sleep(time.Nanosecond); look.leads(s) {
					t.Error("it leads, though its time has passed")
				}
				if s.table != nil {
					t.Error("it still has peers")
				}
			})
		})
	}
}

func TestLeadWhoseTimeHasPassed(t *testing.T) {
	inServer(t, "A=1", func(t *testing.T, s *Server) {
		must(t, s.Lead(ClockTokens(time.Now()), time.Now()))
		if leads, _ := s.Leads(); leads {
			t.Error("it leads")
		}
	})
}

func TestStandBy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(settings(t, "A=1"), ServerOptions{StandBy: true})
		must(t, err)
		defer s.Close()
		wants := func(leads bool, leader string) {
			t.Helper()
			st := s.Stats()
			is, of := s.Leads()
			if is != leads || of != leader || st.Leads != leads || st.Leader != leader {
				t.Errorf("leads %v, leader %q, want %v and %q", is, of, leads, leader)
			}
		}
		wants(false, "")
		s.StandBy("http://b")
		wants(false, "http://b")
		var standBy *StandByError
		if _, _, err := s.Locks("A", 1); !errors.As(err, &standBy) || standBy.Leader != "http://b" {
			t.Errorf("error %v, want a StandByError of http://b", err)
		}
		must(t, s.Configure(settings(t, "B=2"))) // counts once it leads
		must(t, s.Lead(Tokens{5, 9}, time.Now().Add(time.Minute)))
		wants(true, "")
		if st := s.Stats(); len(st.Semaphores) != 1 || st.Semaphores[0].Max != 2 {
			t.Errorf("semaphores are %+v, want B of 2", st.Semaphores)
		}
		time.Sleep(time.Minute)
		wants(false, "")
	})
}

// asleep returns an instant from before the machine slept for d, a time in which only the time of day went
// on. It changes the seconds of the time of day inside a Time. Times of a synctest bubble have no monotonic
// clock, and are of no use here.
func asleep(at time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(d/time.Second) << 30
	return at
}

// A machine that sleeps may stop its monotonic clock. By the time of day an instant has then passed.
func TestPassed(t *testing.T) {
	at := time.Now().Add(time.Minute)
	for _, row := range []struct {
		at, now time.Time
		want    bool
	}{
		{at, at.Add(-1), false},
		{at, at, true},
		{asleep(at, 2*time.Minute), at.Add(-time.Second), true},
		{asleep(at, -time.Hour), at, true}, // the time of day was set back
	} {
		if passed(row.at, row.now) != row.want {
			t.Errorf("%v at %v: want %v", row.at, row.now, row.want)
		}
	}
	s := &session{client: &Client{ExpiresIn: time.Hour}, renewed: time.Now()}
	if s.stale() {
		t.Error("a session that was just renewed is stale")
	}
	if s.renewed = asleep(s.renewed, 54*time.Minute); !s.stale() {
		t.Error("a client whose machine slept believes in its leases")
	}
}
