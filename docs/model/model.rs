// Explicit-state model checker for the Arauto delivery protocol. Standard library only.
//   rustc -O -C target-cpu=native model.rs -o model && ./model list && ./model run NAME
// Breadth-first over hashed states; every property violation is reported with a shortest trace.
// Actions are of three kinds: SYS (must happen under fairness), ENV (may happen, budgeted),
// FAULT (may happen, budgeted together). Time is abstract: a time-out fires when its owner is
// dead or paused (healthy owners finish in time by construction); due / relay-due / expired are ticks.
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::time::Instant;

// ---------------------------------------------------------------- states of the row
const P: u8 = 0; const Q: u8 = 1; const S: u8 = 2; const SENT: u8 = 3; const DLV: u8 = 4;
const F: u8 = 5; const U: u8 = 6; const C: u8 = 7; const E: u8 = 8;
const NAMES: [&str; 9] = ["PENDING", "QUEUED", "SENDING", "SENT", "DELIVERED", "FAILED", "UNKNOWN", "CANCELLED", "EXPIRED"];
static OVER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
fn terminal(s: u8) -> bool { matches!(s, SENT | DLV | F | C | E) }

// ---------------------------------------------------------------- per-id step of a worker
const DONE: u8 = 0; const FRESH: u8 = 1; const GATED: u8 = 2; const CLAIMED: u8 = 3; const GUARDED: u8 = 4;
const READY: u8 = 5; const FLY: u8 = 6; const P_ACC: u8 = 7; const P_RET: u8 = 8; const P_REJ: u8 = 9;
const A_ACC: u8 = 10; const A_RET: u8 = 11; const A_REJ: u8 = 12; const A_UNK: u8 = 13; const SCHED: u8 = 14; const REL: u8 = 15;
const RELSCHED: u8 = 16;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Row {
    st: u8, att: u8, tok: u8, due: u8, cdf: u8, mark: u8, unc: u8, creq: u8, exp: u8, early: u8, resc: u8, lock: u8, pmid: u8,
    // ghosts: provider calls, acceptances, counted-but-never-made calls, message credit (fault-free only), call begun for tok,
    // requests of dead/timed-out callers still at the provider, receipts seen, replays
    calls: u8, acc: u8, ph: u8, credit: u8, begun: u8, orphan: u8, neg: u8, pos: u8, repl: u8, rk: [u8; 4], wr: u8,
}
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Debug)]
struct Wk { mask: u8, tag: u8, st: [u8; 2], tok: [u8; 2], seen: [u8; 2], ak: [u8; 2], paused: u8, inred: u8 }
const LOG: usize = 10; const QQ: usize = 10;
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct St {
    r: [Row; 2], w: [Wk; 2], relay: [u8; 2],
    log: [u8; LOG], ll: u8, pos: u8, q: [u8; QQ], ql: u8, un: [u8; 4], cd: [u8; 2], guard: [u8; 2],
    faults: u8, ncan: u8, nrep: u8, ndef: u8, nrc: u8,
    // ordering: the bound of row 0 (the earlier one) has passed; row 1 waits for row 0 with due == 3
    od: u8,
}
#[derive(Clone, Copy, PartialEq, Debug)] enum Resc { Marker, Naive, BridgeWm, None }
#[derive(Clone, Copy, PartialEq, Debug)] enum K { Sys, Env, Fault }

#[derive(Clone, Debug)]
struct Cfg {
    n: usize, workers: usize, relays: usize, faults: u8, hold: bool, max_att: u8, cancels: u8, replays: u8, defers: u8, receipts: u8,
    expiry: bool, poison: bool, max_resc: u8, refuse: bool, reject: bool, longretry: bool, pause_window: bool, writes: bool,
    f_kill: bool, f_pause: bool, f_relay: bool, f_bridge: bool, f_kafka: bool, f_redis: bool, f_net: bool, f_slow: bool, f_pg: bool,
    resc: Resc, settle: bool, cap: usize, stop_first: bool, reduce: bool, tolerate: bool,
    // mutations (all false / default in the protocol)
    m_relay_blind: bool, m_relay_nolock_cas: bool, m_skip_locked: bool, m_claim_queued_only: bool, m_rescue_pending: bool, m_guard_nx: bool,
    m_no_fence: bool, m_record_no_cas: bool, m_cd_untied: bool, m_cd_no_delay: bool, m_early_drop: bool, m_early_direct: bool,
    m_no_unc: bool, m_cancel_sending: bool, m_no_exp: bool, m_marker_overtakes: bool, m_stamp_early: bool, m_ack_early: bool,
    m_bridge_commit_first: bool, m_poison_chunk: bool, m_resc_unbounded: bool, m_att_at_claim: bool, m_strict_late: bool, m_defer_no_cas: bool,
    ordered: bool, m_order_none: bool, m_order_no_recheck: bool, m_order_retry_frees: bool,
    m_no_guard: bool, m_claim_no_cas: bool, m_record_status_only: bool, m_no_creq: bool, m_guard_uuid: bool, m_no_late_pos: bool,
}
fn base() -> Cfg {
    Cfg { n: 1, workers: 2, relays: 2, faults: 2, hold: false, max_att: 2, cancels: 1, replays: 0, defers: 1, receipts: 1, expiry: true,
        poison: false, max_resc: 3, refuse: true, reject: true, longretry: true, pause_window: false, writes: false,
        f_kill: true, f_pause: true, f_relay: true, f_bridge: true, f_kafka: true, f_redis: true, f_net: true, f_slow: true, f_pg: false,
        resc: Resc::Marker, settle: true, cap: 60_000_000, stop_first: false, reduce: true, tolerate: false,
        m_relay_blind: false, m_relay_nolock_cas: false, m_skip_locked: false, m_claim_queued_only: false, m_rescue_pending: false, m_guard_nx: false,
        m_no_fence: false, m_record_no_cas: false, m_cd_untied: false, m_cd_no_delay: false, m_early_drop: false, m_early_direct: false,
        m_no_unc: false, m_cancel_sending: false, m_no_exp: false, m_marker_overtakes: false, m_stamp_early: false, m_ack_early: false,
        m_bridge_commit_first: false, m_poison_chunk: false, m_resc_unbounded: false, m_att_at_claim: false, m_strict_late: false, m_defer_no_cas: false,
        ordered: false, m_order_none: false, m_order_no_recheck: false, m_order_retry_frees: false,
        m_no_guard: false, m_claim_no_cas: false, m_record_status_only: false, m_no_creq: false, m_guard_uuid: false, m_no_late_pos: false }
}

struct Succ { k: K, lab: (&'static str, u8, u8), s: St, v: Option<&'static str> }

impl St {
    fn init(c: &Cfg) -> St {
        let mut s = St::default();
        for d in 0..2 { if d < c.n { s.r[d] = Row { credit: 1, wr: c.writes as u8, ..Row::default() } } else { s.r[d].st = DLV } }
        s
    }
    fn normal(&mut self, c: &Cfg) {
        if c.reduce && self.nrep >= c.replays { for d in 0..c.n { if terminal(self.r[d].st) && self.r[d].lock == 0 { self.inert(d, c); } } }
        for w in self.w.iter_mut() {
            if w.mask == 0 { *w = Wk::default(); }
            for d in 0..2 { if w.st[d] == DONE { w.tok[d] = 0; w.seen[d] = 0; w.ak[d] = 0; } if w.st[d] < CLAIMED { w.tok[d] = 0 } }
        }
        if c.workers == 2 { self.w.sort_unstable(); }
        if c.relays == 2 { self.relay.sort_unstable(); }
        if self.faults > 0 { for d in 0..2 { self.r[d].credit = 0; } }
        for i in self.ll as usize..LOG { self.log[i] = 0; }
        for i in self.ql as usize..QQ { self.q[i] = 0; }
        for d in 0..c.n { let r = &mut self.r[d]; if r.st != Q { r.mark = 0; } if r.st != P && r.st != Q { r.due = 0; r.cdf = 0; } }
    }
    /// Sound reduction: a terminal row that no replay can reopen makes every message for it a no-op; drop them,
    /// and forget the fields that nothing can read again.
    fn inert(&mut self, d: usize, c: &Cfg) {
        let bit = 1u8 << d;
        let (mut j, mut pos) = (0usize, self.pos as usize);
        for i in 0..self.ll as usize {
            let mut x = self.log[i]; let mut drop = x == 1 + d as u8;
            if x & 16 != 0 { x &= !bit; drop = x == 16; }
            if drop { if i < self.pos as usize { pos -= 1 } } else { self.log[j] = x; j += 1; }
        }
        self.ll = j as u8; self.pos = pos as u8; j = 0;
        for i in 0..self.ql as usize { let x = self.q[i] & !bit; if x & 15 != 0 { self.q[j] = x; j += 1; } }
        self.ql = j as u8;
        for m in 1..4usize { if m as u8 & bit != 0 { let k = self.un[m]; self.un[m] = 0; self.un[m & !(bit as usize)] += k; } }
        self.un[0] = 0; self.cd[d] = 0;
        for w in self.w.iter_mut() {
            if w.st[d] == FRESH || w.st[d] == GATED || w.st[d] == SCHED { w.st[d] = DONE }
            if w.st[d] == RELSCHED { w.st[d] = REL }
            if w.st[d] == DONE { w.mask &= !bit; w.tok[d] = 0; if w.mask == 0 { *w = Wk::default() } }
        }
        if self.r[d].orphan == 0 && self.w.iter().all(|w| w.tok[d] == 0) {
            self.guard[d] = 0; let r = self.r[d];
            self.r[d] = if self.nrc >= c.receipts { Row { st: r.st, ..Row::default() } }
                else { Row { st: r.st, acc: r.acc, pmid: r.pmid, rk: r.rk, unc: r.unc, neg: r.neg, pos: r.pos, repl: r.repl, wr: r.wr, ..Row::default() } };
        }
    }
    fn qpush(&mut self, x: u8) { if (self.ql as usize) < QQ { self.q[self.ql as usize] = x; self.ql += 1; } else { OVER.store(true, std::sync::atomic::Ordering::Relaxed) } }
    fn lpush(&mut self, x: u8) { if (self.ll as usize) < LOG { self.log[self.ll as usize] = x; self.ll += 1; } else { OVER.store(true, std::sync::atomic::Ordering::Relaxed) } }
    fn qpop(&mut self, i: usize) -> u8 { let x = self.q[i]; for j in i..self.ql as usize - 1 { self.q[j] = self.q[j + 1]; } self.ql -= 1; x }
    fn settled(&self, d: usize) -> bool { self.r[d].orphan == 0 && self.w.iter().all(|w| w.st[d] != FLY) }
    fn inflight(&self, d: usize) -> u8 { self.r[d].orphan + self.w.iter().filter(|w| w.st[d] == FLY).count() as u8 }
    /// ordering: row 1 must wait, because row 0 is open and its bound has not passed
    fn blocked(&self, d: usize, c: &Cfg) -> bool { c.ordered && d == 1 && !terminal(self.r[0].st) && self.od == 0 }
    fn marker_out(&self) -> bool { self.log[..self.ll as usize].iter().any(|x| x & 16 != 0) || self.q[..self.ql as usize].iter().any(|x| x & 16 != 0) }
    fn clear_marks(&mut self, d: usize) {
        for i in 0..self.ll as usize { if self.log[i] & 16 != 0 { self.log[i] &= !(1 << d) } }
        for i in 0..self.ql as usize { if self.q[i] & 16 != 0 { self.q[i] &= !(1 << d) } }
        self.r[d].mark = 0;
    }
    /// healthy: some live, unpaused worker holds id d
    fn held_healthy(&self, d: usize) -> bool { self.w.iter().any(|w| w.paused == 0 && w.st[d] != DONE) }
}
fn bump(r: &mut Row, c: &Cfg) { if c.writes { r.wr += 1 } }

/// what the end of a call does to the row (record, or a late answer on UNKNOWN)
fn end_call(r: &mut Row, outcome: u8, k: u8, c: &Cfg, longretry: bool) -> bool {
    let early = r.early; r.early = 0;
    match outcome {
        A_ACC => { r.pmid = k; r.st = if early == 1 { DLV } else if early == 2 + k { F } else { SENT }; false }
        A_UNK => { if !c.m_no_unc { r.unc = 1 } r.st = if early == 1 { DLV } else if early >= 2 { F } else { U }; false }
        A_REJ => { r.st = if early == 1 { DLV } else { F }; false }
        A_RET => {
            if early == 1 { r.st = DLV; false } else if r.creq == 1 { r.st = C; false } else if r.att >= c.max_att { r.st = F; false }
            else if r.exp == 1 { r.st = E; false } else { r.st = P; r.due = 1; r.cdf = !longretry as u8; r.credit += 1; !longretry }
        }
        _ => unreachable!(),
    }
}
/// give a claimed row back: the call has not begun
fn give_back(r: &mut Row, tok: u8, c: &Cfg) {
    if r.st == S && r.tok == tok {
        if c.m_att_at_claim { /* the mutation forgets to give the attempt back */ }
        bump(r, c);
        if r.early == 1 { r.st = DLV; r.early = 0; return; }
        r.early = 0;
        if r.creq == 1 { r.st = C } else if r.exp == 1 { r.st = E } else { r.st = P; r.due = 1; r.cdf = 0; r.credit += 1; }
    }
}

fn succ(s: &St, c: &Cfg, out: &mut Vec<Succ>) {
    out.clear();
    macro_rules! push { ($k:expr, $lab:expr, $d:expr, $x:expr, $t:expr, $v:expr) => {{
        let mut t: St = $t; let v: Option<&'static str> = $v; let v = v.or_else(|| state_check(&t, c)).or(if OVER.swap(false, std::sync::atomic::Ordering::Relaxed) { Some("CAP a queue of the model is full") } else { None }); t.normal(c);
        out.push(Succ { k: $k, lab: ($lab, $d as u8, $x as u8), s: t, v });
    }} }
    let n = c.n;
    let nf = s.faults < c.faults;
    // ------------------------------------------------------------------ relay
    for i in 0..c.relays {
        if i == 1 && s.relay[0] == s.relay[1] { continue; }
        let x = s.relay[i];
        if x == 0 {
            for d in 0..n {
                let r = &s.r[d];
                let due = r.due == 0 || (c.m_cd_no_delay && r.due == 2);
                if r.st == P && due && r.exp == 0 && (r.lock == 0 || c.m_relay_blind || c.m_relay_nolock_cas) {
                    let mut t = *s; t.relay[i] = 1 + d as u8; if !(c.m_relay_blind || c.m_relay_nolock_cas) { t.r[d].lock = 1; }
                    push!(K::Sys, "relay: SELECT ... FOR UPDATE SKIP LOCKED row", d, i, t, None);
                }
            }
        } else if x <= 2 {
            let d = (x - 1) as usize;
            let mut t = *s; t.relay[i] = 3 + d as u8; t.lpush(1 + d as u8);
            let mut v = None;
            if s.faults == 0 { if t.r[d].credit == 0 { v = Some("ECON fault-free: more messages than sends due"); } else { t.r[d].credit -= 1 } }
            push!(K::Sys, "relay: publish, broker acks", d, i, t, v);
        } else {
            let d = (x - 3) as usize;
            let mut t = *s; t.relay[i] = 0; t.r[d].lock = 0;
            let ok = c.m_relay_blind || t.r[d].st == P;
            let mut v = None;
            if ok {
                if s.r[d].st != P { v = Some("RELAY overwrote a row that was not PENDING"); }
                t.r[d].st = Q; t.r[d].cdf = 0; if !c.m_relay_nolock_cas && !c.m_relay_blind { t.r[d].due = 0; }
                bump(&mut t.r[d], c);
                if !c.m_stamp_early { t.clear_marks(d); }
            }
            push!(K::Sys, "relay: UPDATE SET QUEUED, commit", d, i, t, v);
        }
        if x != 0 && nf && c.f_relay {
            let d = ((x - 1) % 2) as usize; let mut t = *s; t.relay[i] = 0; t.r[d].lock = 0; t.faults += 1;
            push!(K::Fault, "FAULT relay dies before commit (rollback)", d, i, t, None);
        }
    }
    // ------------------------------------------------------------------ marker (probe) emission
    if c.resc == Resc::Marker && !s.marker_out() {
        let mut mask = 0; for d in 0..n {
            if s.r[d].st == Q && s.r[d].mark == 0 { mask |= 1 << d }
            if c.m_stamp_early && s.r[d].lock == 1 && s.r[d].st == P { mask |= 1 << d }
        }
        if mask != 0 { let mut t = *s; t.lpush(16 | mask); push!(K::Sys, "relay: publish marker (T = db clock now) covering mask", mask, 0, t, None); }
    }
    // ------------------------------------------------------------------ bridge
    {
        let p = s.pos as usize; let ll = s.ll as usize;
        let mut take = |t: St, i: usize| -> (St, usize) { // enqueue from index i, returns how many were taken
            let mut t = t; let x = t.log[i];
            if x & 16 != 0 { t.qpush(x); (t, 1) } else { t.qpush(1 << (x - 1)); (t, 1) }
        };
        if p < ll {
            let (mut t, k) = take(*s, p); t.pos += k as u8;
            if c.m_bridge_commit_first { /* commit first: message leaves the log before it is enqueued; a death in between loses it */
                let mut t2 = *s; for j in p..ll - 1 { t2.log[j] = t2.log[j + 1]; } t2.ll -= 1;
                if nf && c.f_bridge { let mut t3 = t2; t3.faults += 1; push!(K::Fault, "FAULT bridge dies after commit before enqueue", 0, 0, t3, None); }
                let x = s.log[p]; let mut t3 = t2; t3.qpush(if x & 16 != 0 { x } else { 1 << (x - 1) });
                push!(K::Sys, "bridge: commit then enqueue", x, 0, t3, None);
            } else { push!(K::Sys, "bridge: enqueue to Celery", s.log[p], 0, t, None); }
            if n == 2 && p + 1 < ll && s.log[p] & 16 == 0 && s.log[p + 1] & 16 == 0 && s.log[p] != s.log[p + 1] && !c.m_bridge_commit_first {
                let mut t = *s; t.qpush(3); t.pos += 2; push!(K::Sys, "bridge: enqueue chunk [1,2]", 3, 0, t, None);
            }
            if c.m_marker_overtakes { for j in p + 1..ll { if s.log[j] & 16 != 0 {
                let mut t = *s; let x = t.log[j]; t.qpush(x); for z in j..ll - 1 { t.log[z] = t.log[z + 1]; } t.ll -= 1;
                push!(K::Sys, "bridge: enqueue marker ahead of buffered chunk", x, 0, t, None); } } }
        }
        if p > 0 {
            let mut t = *s; for j in 0..ll - p { t.log[j] = t.log[j + p]; } t.ll -= p as u8; t.pos = 0;
            push!(K::Sys, "bridge: commit offsets", 0, 0, t, None);
            if nf && c.f_bridge { let mut t = *s; t.pos = 0; t.faults += 1; push!(K::Fault, "FAULT bridge dies after enqueue before offset commit", 0, 0, t, None); }
        }
        if ll > 0 && nf && c.f_kafka { let mut t = *s; t.ll = 0; t.pos = 0; t.faults += 1; push!(K::Fault, "FAULT Kafka wiped", 0, 0, t, None); }
    }
    // ------------------------------------------------------------------ Redis wiped
    if nf && c.f_redis && (s.ql > 0 || s.un != [0; 4] || s.cd != [0; 2] || s.guard != [0; 2] || s.w.iter().any(|w| w.inred == 1)) {
        let mut t = *s; t.ql = 0; t.un = [0; 4]; t.cd = [0; 2]; t.guard = [0; 2]; for w in t.w.iter_mut() { w.inred = 0 } t.faults += 1;
        push!(K::Fault, "FAULT Redis FLUSHALL", 0, 0, t, None);
    }
    // redelivery of what dead workers held
    for m in 1..4usize { if s.un[m] > 0 { let mut t = *s; t.un[m] -= 1; t.qpush(m as u8); push!(K::Sys, "celery: redeliver unacked chunk", m, 0, t, None); } }
    // ------------------------------------------------------------------ workers
    for i in 0..c.workers {
        if i == 1 && s.w[0] == s.w[1] { continue; }
        let w = s.w[i];
        if w.mask == 0 {
            if s.ql > 0 {
                let mut t = *s; let x = t.qpop(0);
                if x & 16 != 0 {
                    for d in 0..n { if x >> d & 1 == 1 && t.r[d].st == Q { t.r[d].mark = 1 } }
                    push!(K::Sys, "worker: run marker task, flow_mark := T", x, i, t, None);
                    if nf && c.f_kill { let mut t = *s; t.qpop(0); t.faults += 1; push!(K::Fault, "FAULT worker dies on marker", x, i, t, None); }
                } else {
                    let nw = &mut t.w[i]; nw.mask = x; nw.tag = 0; nw.inred = !c.m_ack_early as u8; for d in 0..2 { if x >> d & 1 == 1 { nw.st[d] = FRESH } }
                    push!(K::Sys, "worker: take chunk", x, i, t, None);
                }
            }
            for d in 0..n { let mut b = s.cd[d]; let mut tag = 0u8; while b != 0 { if b & 1 == 1 {
                let r = &s.r[d];
                let ripe = !(r.st == P && r.due == 1 && r.att == tag);
                if ripe || (nf && c.f_slow) {
                    let mut t = *s; t.cd[d] &= !(1 << tag); if !ripe { t.faults += 1 }
                    let nw = &mut t.w[i]; nw.mask = 1 << d; nw.tag = tag + 1; nw.inred = 1; nw.st[d] = FRESH;
                    push!(if ripe { K::Sys } else { K::Fault }, if ripe { "worker: countdown fires for attempts=" } else { "FAULT clock: countdown fires early, attempts=" }, d, tag, t, None);
                } } b >>= 1; tag += 1; } }
            continue;
        }
        // crash, pause
        if nf && c.f_kill {
            let mut t = *s; t.faults += 1;
            for d in 0..n { if w.st[d] == FLY { t.r[d].orphan += 1 } }
            if w.inred == 1 { if w.tag == 0 { t.un[w.mask as usize] += 1 } else { let d = if w.mask == 1 { 0 } else { 1 }; t.cd[d] |= 1 << (w.tag - 1); } }
            t.w[i] = Wk::default();
            push!(K::Fault, "FAULT kill -9 worker holding", w.mask, i, t, None);
        }
        if w.paused == 1 {
            let mut t = *s; t.w[i].paused = 0; push!(K::Sys, "worker resumes", w.mask, i, t, None);
            if w.inred == 1 && w.tag == 0 { let mut t = *s; t.w[i].inred = 0; t.un[w.mask as usize] += 1; push!(K::Env, "celery: visibility timeout of a paused worker", w.mask, i, t, None); }
        } else if nf && c.f_pause && (0..n).any(|d| w.st[d] != DONE) {
            let mut t = *s; t.w[i].paused = 1; t.faults += 1; push!(K::Fault, "FAULT worker paused beyond its lease", w.mask, i, t, None);
        }
        if (0..n).all(|d| w.st[d] == DONE) { if w.paused == 0 { let mut t = *s; t.w[i] = Wk::default(); push!(K::Sys, "worker: ack task", w.mask, i, t, None); } continue; }
        for d in 0..n {
            let x = w.st[d]; let r = s.r[d];
            if x == DONE { continue; }
            // the provider's side moves whether or not the worker is paused
            if x == FLY {
                let mut t = *s; t.w[i].st[d] = P_ACC; t.r[d].acc += 1; let k = t.r[d].acc; t.w[i].ak[d] = k; push!(K::Sys, "provider: accepts", d, k, t, acc_check(&t, d, c));
                if c.refuse { let mut t = *s; t.w[i].st[d] = P_RET; push!(K::Sys, "provider: refuses, may succeed later (503)", d, i, t, None); }
                if c.reject { let mut t = *s; t.w[i].st[d] = P_REJ; push!(K::Sys, "provider: rejects for good", d, i, t, None); }
            }
            if w.paused == 1 { continue; }
            // a chunk is loaded, claimed (one statement, id order) and guarded member by member
            if d == 1 && w.st[0] != DONE && w.st[0] <= CLAIMED && x <= CLAIMED && w.st[0] <= x { continue; }
            // SIGTERM (or a Redis guard that cannot be asked) between claim and call: the holder gives the row back
            if (x == CLAIMED || x == GUARDED) && s.ndef < c.defers {
                let mut t = *s; t.ndef += 1; give_back(&mut t.r[d], w.tok[d], c); t.w[i].st[d] = REL;
                push!(K::Env, "worker: SIGTERM before the call, give back", d, w.tok[d], t, None);
            }
            match x {
                FRESH => {
                    let mut t = *s;
                    if c.poison && d == n - 1 {
                        if c.m_poison_chunk { for e in 0..n { if t.w[i].st[e] <= GATED { t.w[i].st[e] = DONE } } } else { t.w[i].st[d] = DONE }
                        push!(K::Sys, "worker: poison member raises", d, i, t, None); continue;
                    }
                    let open = r.st == P || r.st == Q;
                    let tagok = c.m_cd_untied || w.tag == 0 || r.att == w.tag - 1;
                    let dueok = (c.m_cd_untied && w.tag > 0) || r.due != 1;
                    let held = s.blocked(d, c) && !c.m_order_none && !(c.m_order_retry_frees && s.r[0].att > 0 && s.r[0].st != S);
                    if open && tagok && dueok && held {
                        if r.lock == 1 { continue; } // the deferral waits for the relay's row lock
                        t.w[i].st[d] = DONE; let nr = &mut t.r[d]; nr.st = P; nr.due = 3; nr.cdf = 0; nr.credit += 1; bump(nr, c);
                        push!(K::Sys, "worker: deferral (an earlier one of the user is open)", d, i, t, None); continue;
                    }
                    if open && tagok && dueok { t.w[i].st[d] = GATED; t.w[i].seen[d] = r.att; } else { t.w[i].st[d] = DONE }
                    push!(K::Sys, "worker: load, gates (rate, breaker) ok", d, i, t, None);
                }
                GATED => {
                    if s.ndef < c.defers {
                        let mut t = *s; t.ndef += 1; t.w[i].st[d] = DONE;
                        let ok = c.m_defer_no_cas || ((r.st == P || r.st == Q) && r.att == w.seen[d]);
                        if r.lock == 0 || c.m_defer_no_cas {
                            if ok { let o = t.r[d].st; t.r[d].st = P; t.r[d].due = 1; t.r[d].cdf = 0; t.r[d].credit += 1; bump(&mut t.r[d], c);
                                push!(K::Env, "worker: deferral (breaker open)", d, i, t, if o == S { Some("DEFER overwrote a SENDING row") } else { None }); }
                            else { push!(K::Env, "worker: deferral lost, no-op", d, i, t, None); }
                        }
                    }
                    if r.lock == 1 && !c.m_skip_locked && !c.m_claim_no_cas { continue; } // the claim waits for the relay's row lock
                    let mut t = *s;
                    let open = r.st == Q || (r.st == P && !c.m_claim_queued_only);
                    let tagok = c.m_cd_untied || w.tag == 0 || r.att == w.tag - 1;
                    let dueok = (c.m_cd_untied && w.tag > 0) || r.due != 1;
                    let expok = c.m_no_exp || r.exp == 0;
                    if r.lock == 1 && c.m_skip_locked { t.w[i].st[d] = DONE; push!(K::Sys, "worker: claim SKIP LOCKED misses the row, task acked", d, i, t, None); continue; }
                    if (open && tagok && dueok && expok) || (c.m_claim_no_cas && !terminal(r.st)) {
                        let nr = &mut t.r[d]; nr.st = S; nr.tok += 1; nr.mark = 0; nr.due = 0; nr.cdf = 0; nr.begun = 0; bump(nr, c);
                        if c.m_att_at_claim { nr.att += 1 }
                        t.w[i].tok[d] = nr.tok; t.w[i].st[d] = CLAIMED;
                        let v = if r.st == P && r.due == 1 { Some("EARLY claimed before next_attempt_at") } else if r.st == S { Some("CLAIM took a row that another call holds") } else { None };
                        push!(K::Sys, "worker: claim -> SENDING, token", d, t.r[d].tok, t, v);
                    } else {
                        if open && r.exp == 1 && r.lock == 0 { t.r[d].st = E; bump(&mut t.r[d], c); }
                        t.w[i].st[d] = DONE; push!(K::Sys, "worker: claim lost, no-op", d, i, t, None);
                    }
                }
                CLAIMED => {
                    let mut t = *s; let g = s.guard[d]; let me = w.tok[d];
                    let free = c.m_no_guard || g == 0 || if c.m_guard_nx || c.m_guard_uuid { false } else { g < me };
                    if free { if !c.m_no_guard { t.guard[d] = me } t.w[i].st[d] = GUARDED; push!(K::Sys, "worker: guard taken, token", d, me, t, None); }
                    else {
                        // refused: legitimate only if the row has moved past my token (I am stale), or the holder is alive
                        let alive = s.w.iter().any(|o| o.tok[d] == g && o.st[d] >= GUARDED);
                        let v = if r.st == S && r.tok == me && !alive { Some("GUARD of a dead call blocks the rightful one") } else { None };
                        give_back(&mut t.r[d], me, c); t.w[i].st[d] = DONE; push!(K::Sys, "worker: guard refused, give back", d, me, t, v);
                    }
                }
                GUARDED | READY => {
                    // GUARDED: local fence (monotonic clock since claim vs lease and expires_at), then the request leaves.
                    let me = w.tok[d];
                    let fence = c.m_no_fence || (r.st == S && r.tok == me && (c.m_no_exp || r.exp == 0)) || x == READY;
                    if x == GUARDED && c.pause_window && fence { let mut t = *s; t.w[i].st[d] = READY; push!(K::Sys, "worker: fence check passed", d, me, t, None); continue; }
                    if fence {
                        let mut t = *s; let mut v = None;
                        if s.blocked(d, c) { v = Some("ORDER a later call begins while the earlier one is open"); }
                        else if s.inflight(d) > 0 { v = Some("SAFE two provider calls in flight for one delivery"); }
                        else if r.exp == 1 { v = Some("SAFE call started after expires_at"); }
                        else if terminal(r.st) || r.st == P || r.st == Q { v = Some("SAFE call started while the row is not SENDING/UNKNOWN"); }
                        t.r[d].calls += 1;
                        if r.st == S && r.tok == me { t.r[d].begun = 1 } else if t.r[d].ph > 0 { t.r[d].ph -= 1 }
                        t.w[i].st[d] = FLY; push!(K::Sys, "worker: request leaves, token", d, me, t, v);
                    } else {
                        let mut t = *s; give_back(&mut t.r[d], me, c); t.w[i].st[d] = REL; push!(K::Sys, "worker: fence says too late, give back", d, me, t, None);
                    }
                }
                FLY => { if nf && c.f_net { let mut t = *s; t.faults += 1; t.w[i].st[d] = A_UNK; t.r[d].orphan += 1; push!(K::Fault, "FAULT network: read timeout, request maybe still there", d, i, t, None); } }
                P_ACC | P_RET | P_REJ => {
                    let mut t = *s; t.w[i].st[d] = match x { P_ACC => A_ACC, P_RET => A_RET, _ => A_REJ }; push!(K::Sys, "worker: answer arrives", d, i, t, None);
                    if nf && c.f_net { let mut t = *s; t.faults += 1; t.w[i].st[d] = A_UNK; t.w[i].ak[d] = 0; push!(K::Fault, "FAULT network: answer lost", d, i, t, None); }
                }
                A_ACC | A_RET | A_REJ | A_UNK => {
                    for long in 0..2u8 {
                        if long == 1 && !(x == A_RET && c.longretry) { continue; }
                        let mut t = *s; let me = w.tok[d];
                        let mine = r.tok == me && (r.st == S || (r.st == U && !c.m_strict_late));
                        let apply = mine || (c.m_record_no_cas) || (c.m_record_status_only && r.st == S);
                        let mut v = None; let mut sched = false;
                        if apply {
                            if !mine { v = Some("STALE write by a worker that lost its lease"); }
                            let nr = &mut t.r[d]; bump(nr, c);
                            if r.st == S { if !c.m_att_at_claim { nr.att += 1 } }
                            if !(r.st == U && x == A_UNK) { sched = end_call(nr, x, w.ak[d], c, long == 1); }
                            // the wake comes right behind the commit; that it is lost is no fault here, since a row's own time
                            // (below) does not depend on it: m_order_no_recheck takes that away
                            if c.ordered && d == 0 && terminal(t.r[0].st) && t.r[1].st == P && t.r[1].due == 3 { t.r[1].due = 0; }
                        }
                        t.w[i].st[d] = if sched { RELSCHED } else { REL };
                        push!(K::Sys, if apply { "worker: record outcome" } else { "worker: record lost its lease, no-op" }, d, x, t, v);
                    }
                }
                REL | RELSCHED => {
                    let mut t = *s; if s.guard[d] == w.tok[d] { t.guard[d] = 0 } t.w[i].st[d] = if x == REL { DONE } else { SCHED };
                    if x == RELSCHED { t.w[i].tok[d] = w.tok[d]; }
                    push!(K::Sys, "worker: release guard (compare and delete)", d, i, t, None);
                }
                SCHED => {
                    let mut t = *s; t.w[i].st[d] = DONE; let mut v = None;
                    t.cd[d] |= 1 << s.r[d].att;
                    if s.faults == 0 { if t.r[d].credit == 0 { v = Some("ECON fault-free: more messages than sends due"); } else { t.r[d].credit -= 1 } }
                    push!(K::Sys, "worker: schedule countdown", d, i, t, v);
                }
                _ => unreachable!(),
            }
        }
    }
    // ------------------------------------------------------------------ rows: time, sweepers, users
    for d in 0..n {
        let r = s.r[d];
        if r.orphan > 0 {
            let mut t = *s; t.r[d].orphan -= 1; t.r[d].acc += 1; push!(K::Sys, "provider: accepts the request of a dead or timed-out caller", d, 0, t, acc_check(&t, d, c));
            let mut t = *s; t.r[d].orphan -= 1; push!(K::Sys, "provider: that request came to nothing", d, 0, t, None);
        }
        if r.st == P && r.due == 1 { let mut t = *s; t.r[d].due = if r.cdf == 1 { 2 } else { 0 }; push!(K::Sys, "time: next_attempt_at reached", d, 0, t, None); }
        if r.st == P && r.due == 2 {
            let cd = s.cd[d] >> r.att & 1 == 1 || s.w.iter().any(|w| w.st[d] != DONE && (w.st[d] == SCHED || w.st[d] == RELSCHED || w.tag == r.att + 1) && w.paused == 0);
            if !cd { let mut t = *s; t.r[d].due = 0; t.r[d].cdf = 0; push!(K::Sys, "time: relay_at (next_attempt_at + 10 s) reached", d, 0, t, None); }
            else if nf && c.f_slow { let mut t = *s; t.r[d].due = 0; t.r[d].cdf = 0; t.faults += 1; push!(K::Fault, "FAULT slow: countdown more than 10 s late, relay_at reached", d, 0, t, None); }
        }
        if d == 1 && r.st == P && r.due == 3 {
            // The recorder's wake comes right behind the terminal write; without it, or if it is lost, the row's own time does.
            let free = !s.blocked(d, c);
            if free && !c.m_order_no_recheck { let mut t = *s; t.r[d].due = 0; push!(K::Sys, "time: relay_at of a row that waits for its turn", d, 0, t, None); }
            else if !free && s.ndef < c.defers { let mut t = *s; t.ndef += 1; t.r[d].due = 0; push!(K::Env, "time: looked at again, still not its turn", d, 0, t, None); }
        }
        if c.ordered && d == 0 && s.od == 0 && !terminal(r.st) { let mut t = *s; t.od = 1; push!(K::Env, "time: the bound of the earlier one is over", d, 0, t, None); }
        if c.expiry && r.exp == 0 && !terminal(r.st) { let mut t = *s; t.r[d].exp = 1; push!(K::Env, "time: expires_at reached", d, 0, t, None); }
        if r.exp == 1 && (r.st == P || r.st == Q) && r.lock == 0 { let mut t = *s; t.r[d].st = E; bump(&mut t.r[d], c); push!(K::Sys, "sweeper: EXPIRED", d, 0, t, None); }
        // rescue of SENDING
        if r.st == S {
            let holder = s.w.iter().any(|w| w.tok[d] == r.tok && w.st[d] >= CLAIMED && w.st[d] <= A_UNK && w.paused == 0);
            if !holder {
                let mut t = *s; let nr = &mut t.r[d]; bump(nr, c);
                if c.m_rescue_pending { nr.st = P; nr.due = 0; nr.cdf = 0; nr.credit += 1; nr.att += 1; if r.begun == 0 { nr.ph += 1 } }
                else {
                    if !c.m_att_at_claim { nr.att += 1 } if r.begun == 0 { nr.ph += 1 }
                    end_call(nr, A_UNK, 0, c, false);
                }
                push!(K::Sys, "rescue: lease of SENDING row over", d, 0, t, None);
            }
        }
        // rescue of QUEUED
        if r.st == Q && r.lock == 0 {
            let lost = match c.resc {
                Resc::None => false,
                Resc::Naive => true,
                Resc::BridgeWm => !s.log[..s.ll as usize].contains(&(1 + d as u8)),
                Resc::Marker => r.mark == 1 && !s.held_healthy(d),
            };
            if lost {
                let mut t = *s; let nr = &mut t.r[d]; bump(nr, c);
                if !c.m_resc_unbounded { nr.resc += 1; }
                if c.poison && d == n - 1 { nr.credit += 1 } if nr.resc > c.max_resc { nr.st = F } else { nr.st = P; nr.due = 0; nr.cdf = 0; }
                push!(K::Sys, "rescue: QUEUED row judged lost", d, 0, t, None);
            }
        }
        // UNKNOWN resolver
        if r.st == U && (!c.settle || s.settled(d)) {
            let mut t = *s; let nr = &mut t.r[d]; bump(nr, c);
            if !c.hold && r.att < c.max_att && r.exp == 0 && r.creq == 0 { nr.st = P; nr.due = 0; nr.cdf = 0; nr.credit += 1; } else { nr.st = F; }
            push!(K::Sys, "resolver: UNKNOWN window over", d, 0, t, None);
        }
        // cancel
        if s.ncan < c.cancels {
            if (r.st == P || r.st == Q) && r.lock == 0 { let mut t = *s; t.ncan += 1; t.r[d].st = C; bump(&mut t.r[d], c); push!(K::Env, "user: cancel", d, 0, t, None); }
            else if c.m_cancel_sending && r.st == S { let mut t = *s; t.ncan += 1; t.r[d].st = C; push!(K::Env, "user: cancel while SENDING -> CANCELLED", d, 0, t, None); }
            else if (r.st == S || r.st == U) && r.creq == 0 && !c.m_no_creq { let mut t = *s; t.ncan += 1; t.r[d].creq = 1; push!(K::Env, "user: cancel requested during the call", d, 0, t, None); }
        }
        // replay
        if s.nrep < c.replays && r.st == F && r.exp == 0 {
            let mut t = *s; t.nrep += 1; let nr = &mut t.r[d]; nr.st = P; nr.due = 0; nr.cdf = 0; nr.creq = 0; nr.credit += 1; nr.repl += 1; nr.resc = 0; push!(K::Env, "operator: replay", d, 0, t, None);
        }
        // receipts
        if s.nrc < c.receipts { for k in 1..=r.acc.min(4) { for kind in 1..3u8 {
            let rk = r.rk[k as usize - 1]; if rk != 0 && rk != kind { continue; }
            let mut t = *s; t.nrc += 1; let nr = &mut t.r[d]; nr.rk[k as usize - 1] = kind;
            if r.lock == 1 { continue; } // waits for the row lock
            if kind == 1 {
                match r.st {
                    S => { if c.m_early_direct { nr.st = DLV; } else if !c.m_early_drop { nr.early = 1 } nr.pos = 1; }
                    U | SENT => { nr.st = DLV; nr.pos = 1 }
                    P | Q => { if !c.m_no_late_pos { nr.st = DLV; } nr.pos = 1 }
                    F | E | C => { if r.unc == 1 { if !c.m_no_late_pos { nr.st = DLV; } nr.pos = 1 } }
                    _ => {}
                }
            } else {
                nr.neg = 1;
                match r.st { S => { if nr.early == 0 { nr.early = 2 + k } } U => nr.st = F, SENT => { if r.pmid == k { nr.st = F } } _ => {} }
            }
            bump(&mut t.r[d], c);
            push!(K::Env, if kind == 1 { "receipt: delivered" } else { "receipt: undelivered" }, d, k, t, None);
        } } }
        // PostgreSQL forgets the last commit (only with asynchronous commit or a lossy failover)
        if nf && c.f_pg && r.st == S { let mut t = *s; t.faults += 1; let nr = &mut t.r[d]; nr.st = Q; nr.tok -= 1; nr.begun = 0; push!(K::Fault, "FAULT PostgreSQL loses the claim's commit", d, 0, t, None); }
    }
}
fn acc_check(t: &St, d: usize, c: &Cfg) -> Option<&'static str> {
    let r = &t.r[d];
    if c.hold && r.acc > 1 + r.repl { return Some("SAFE hold: accepted twice by the provider"); }
    if !c.hold && r.acc > 1 + t.faults + r.repl + r.neg { return Some("SAFE resend: acceptances > 1 + faults"); }
    None
}
fn allowed(a: u8, b: u8) -> bool {
    a == b || matches!((a, b), (P, Q) | (P, S) | (P, C) | (P, E) | (P, DLV) | (Q, P) | (Q, S) | (Q, C) | (Q, E) | (Q, DLV) | (Q, F)
        | (S, SENT) | (S, DLV) | (S, F) | (S, U) | (S, P) | (S, C) | (S, E) | (U, SENT) | (U, DLV) | (U, F) | (U, P) | (U, C) | (U, E)
        | (SENT, DLV) | (SENT, F) | (F, P) | (F, DLV) | (E, DLV) | (C, DLV))
}
fn trans_check(a: &St, b: &St, lab: &str, c: &Cfg) -> Option<&'static str> {
    for d in 0..c.n {
        let (x, y) = (&a.r[d], &b.r[d]);
        if !allowed(x.st, y.st) && !lab.starts_with("FAULT PostgreSQL") { return Some("TABLE edge not in TRANSITIONS"); }
        if x.st != y.st && terminal(x.st) {
            let ok = match (x.st, y.st) { (SENT, DLV) | (SENT, F) => lab.starts_with("receipt"), (F, P) => lab.starts_with("operator"),
                (F, DLV) | (E, DLV) | (C, DLV) => lab.starts_with("receipt") && x.unc == 1, _ => false };
            if !ok { return Some("TERM a terminal state was left"); }
        }
    }
    None
}
fn t_faults(s: &St) -> u8 { s.faults }
fn state_check(s: &St, c: &Cfg) -> Option<&'static str> {
    for d in 0..c.n {
        let r = &s.r[d];
        if s.inflight(d) > 1 { return Some("SAFE two provider calls in flight for one delivery"); }
        let want = r.calls + r.ph;
        let open = (r.st == S && r.begun == 1) as u8;
        if c.f_pg { } else if c.m_att_at_claim { if r.st != S && r.att != want { return Some("COUNT attempts != provider calls"); } }
        else if r.att + open != want && !(r.st == S && r.begun == 0 && r.att == want) { return Some("COUNT attempts != provider calls"); }
        if t_faults(s) == 0 && r.ph > 0 { return Some("COUNT attempt counted without a call, no fault"); }
        if r.ph > s.faults { return Some("COUNT uncounted attempts exceed faults"); }
        if matches!(r.st, P | Q | C | E | F) && r.acc > 0 && r.unc == 0 && r.neg == 0 && r.repl == 0 { return Some("TRUTH accepted by the provider, row says surely not sent"); }
        if r.pos == 1 && r.neg == 0 && r.repl == 0 && !matches!(r.st, S | DLV) { return Some("TRUTH a delivered receipt was forgotten"); }
        if c.writes && r.st == SENT && s.faults == 0 && r.att == 1 && s.ndef == 0 && s.ncan == 0 && s.nrc == 0 && r.wr != 4 { return Some("ECON row writes != 4 on the plain way"); }
    }
    None
}
type FxMap = HashMap<u128, u32, BuildHasherDefault<Id>>;
#[derive(Default)] struct Id(u64);
impl Hasher for Id { fn finish(&self) -> u64 { self.0 } fn write(&mut self, _: &[u8]) {} fn write_u128(&mut self, x: u128) { self.0 = x as u64 } }
fn fp(s: &St) -> u128 { // 128-bit fingerprint: two independent 64-bit hashes over the state's bytes
    let b: &[u8] = unsafe { std::slice::from_raw_parts(s as *const St as *const u8, std::mem::size_of::<St>()) };
    let mut a: u64 = 0xcbf29ce484222325; let mut z: u64 = 0x9E3779B97F4A7C15;
    let mut it = b.chunks_exact(8);
    for ch in &mut it { let x = u64::from_le_bytes(ch.try_into().unwrap()); a = (a ^ x).wrapping_mul(0x9FB21C651E98DF25); a ^= a >> 29; z = (z.rotate_left(23) ^ x).wrapping_mul(0xD6E8FEB86659FD93); z ^= z >> 32; }
    for x in it.remainder() { a = (a ^ *x as u64).wrapping_mul(0x100000001b3); a ^= a >> 31; z = (z.rotate_left(7) ^ *x as u64).wrapping_mul(0xD6E8FEB86659FD93); }
    a ^= a >> 33; a = a.wrapping_mul(0xff51afd7ed558ccd); a ^= a >> 33; z ^= z >> 29; z = z.wrapping_mul(0xc4ceb9fe1a85ec53); z ^= z >> 32;
    (a as u128) << 64 | z as u128
}
fn show(s: &St, c: &Cfg) -> String {
    let mut o = String::new();
    for d in 0..c.n { let r = &s.r[d]; o += &format!("[{} att={} tok={} calls={} acc={}{}{}{}] ", NAMES[r.st as usize], r.att, r.tok, r.calls, r.acc,
        if r.unc == 1 { " uncertain" } else { "" }, if r.lock == 1 { " locked" } else { "" }, if r.exp == 1 { " past-expiry" } else { "" }); }
    o
}
fn trace(states: &[St], parent: &[u32], mut i: u32, last: Option<(&St, (&'static str, u8, u8))>, c: &Cfg) -> Vec<String> {
    let mut idx = vec![]; loop { idx.push(i); if i == 0 { break; } i = parent[i as usize]; } idx.reverse();
    let mut out = vec![]; let mut buf = vec![];
    for p in idx.windows(2) {
        succ(&states[p[0] as usize], c, &mut buf);
        let l = buf.iter().find(|x| x.s == states[p[1] as usize]).map(|x| x.lab).unwrap_or(("?", 0, 0));
        out.push(format!("{} ({},{})  {}", l.0, l.1, l.2, show(&states[p[1] as usize], c)));
    }
    if let Some((s, l)) = last { out.push(format!("{} ({},{})  {}", l.0, l.1, l.2, show(s, c))); }
    out
}
fn run(name: &str, c: &Cfg, verbose: bool, edges: bool) -> (usize, Vec<&'static str>, bool) {
    let t0 = Instant::now();
    assert!(std::mem::size_of::<St>() < 256);
    let mut states: Vec<St> = vec![]; let mut parent: Vec<u32> = vec![]; let mut depth: Vec<u16> = vec![];
    let mut seen: FxMap = HashMap::default();
    let mut viol: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut seen_edges: BTreeMap<(u8, u8), BTreeSet<&'static str>> = BTreeMap::new();
    let mut s0 = St::init(c); s0.normal(c); seen.insert(fp(&s0), 0); states.push(s0); parent.push(0); depth.push(0);
    let mut i = 0usize; let mut ntr = 0u64; let mut buf = vec![]; let mut capped = false;
    while i < states.len() {
        let s = states[i]; succ(&s, c, &mut buf); ntr += buf.len() as u64;
        for x in buf.iter() {
            for d in 0..c.n { if s.r[d].st != x.s.r[d].st { seen_edges.entry((s.r[d].st, x.s.r[d].st)).or_default().insert(x.lab.0); } }
            let v = x.v.or_else(|| trans_check(&s, &x.s, x.lab.0, c));
            if let Some(v) = v { if !viol.contains_key(v) { let tr = trace(&states, &parent, i as u32, Some((&x.s, x.lab)), c); viol.insert(v, tr); } if !(c.tolerate && (v.starts_with("SAFE two") || v.starts_with("SAFE call"))) { continue; } }
            let h = fp(&x.s);
            if !seen.contains_key(&h) { seen.insert(h, states.len() as u32); states.push(x.s); parent.push(i as u32); depth.push(depth[i] + 1); }
        }
        if c.stop_first && !viol.is_empty() { break; }
        if states.len() > c.cap { capped = true; break; }
        i += 1;
    }
    let safety_t = t0.elapsed().as_secs_f32();
    // liveness: the SYS-only graph must be acyclic and its sinks must have every delivery terminal
    let mut live = "not checked".to_string();
    if !capped && !(c.stop_first && !viol.is_empty()) {
        let nst = states.len(); let mut indeg = vec![0u32; nst]; let mut sinks = 0usize;
        for i in 0..nst {
            succ(&states[i], c, &mut buf); let mut any = false;
            for x in buf.iter() { if x.k == K::Sys { any = true; if let Some(j) = seen.get(&fp(&x.s)) { indeg[*j as usize] += 1; } } }
            if !any { sinks += 1; if (0..c.n).any(|d| !terminal(states[i].r[d].st)) && !viol.contains_key("LIVE stuck: nothing left to do and a delivery is not terminal") {
                viol.insert("LIVE stuck: nothing left to do and a delivery is not terminal", trace(&states, &parent, i as u32, None, c)); } }
        }
        let mut stack: Vec<u32> = (0..nst as u32).filter(|i| indeg[*i as usize] == 0).collect(); let mut done = 0usize;
        while let Some(i) = stack.pop() { done += 1; succ(&states[i as usize], c, &mut buf);
            for x in buf.iter() { if x.k == K::Sys { if let Some(j) = seen.get(&fp(&x.s)) { let j = *j as usize; indeg[j] -= 1; if indeg[j] == 0 { stack.push(j as u32) } } } } }
        if done < nst {
            let j = (0..nst).find(|i| indeg[*i] > 0).unwrap();
            viol.insert("LIVE livelock: a fault-free cycle", trace(&states, &parent, j as u32, None, c));
        }
        live = format!("SYS graph acyclic: {}, sinks {}", done == nst, sinks);
    }
    println!("== {}: states {} transitions {} depth {} {} {:.1}s+{:.1}s; {}; violations: {}", name, states.len(), ntr, depth.last().unwrap(), if capped { "CAPPED" } else { "complete" },
        safety_t, t0.elapsed().as_secs_f32() - safety_t, live, if viol.is_empty() { "none".into() } else { viol.keys().map(|x| x.to_string()).collect::<Vec<_>>().join(" | ") });
    if verbose { for (v, tr) in &viol { println!("  -- {} (shortest, {} steps)", v, tr.len()); for (j, l) in tr.iter().enumerate() { println!("     {:2} {}", j + 1, l); } } }
    if edges { for ((a, b), l) in &seen_edges { println!("  edge {:9} -> {:9} by {}", NAMES[*a as usize], NAMES[*b as usize], l.iter().cloned().collect::<Vec<_>>().join(" | ")); } }
    (states.len(), viol.keys().cloned().collect(), capped)
}
include!("configs.rs");
