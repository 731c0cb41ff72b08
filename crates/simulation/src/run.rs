//! One run: a seed, from the first operation to the final checks.
//!
//! ```text
//!   set up ─▶ storm: clients, faults, crashes ─▶ calm: the backlog drains ─▶ operator: poison ─▶ workers shut down
//!                                                                                  │
//!            final checks ◀── operator: poison ◀── rechecks, each when it is due ◀──┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::client::{ClientAction, ClientMessage, ClientStep, EMPLOYEES, SimulatedClient};
use super::cuts::{Cut, cut_plan, cut_steps};
use super::encryption;
use super::fault::{FaultCounts, FaultKind};
use super::fault_plan::{FaultPlan, JOBS};
use super::faultless;
use super::fleet::{WorkerFleet, stores};
use super::history::CLIENT;
use super::injector::FaultlessDelays;
use super::items::Address;
use super::ledger::{EntityJob, Expectation, PoisonReport, poison};
use super::oracle::Judgement;
use super::patterns::{Excused, sent_values};
use super::poison_desk::handle_poison;
use super::rare_event::RareEvents;
use super::readers::{self, SimulatedReaders, SlowAnswers};
use super::shared_state::{OPERATOR, READER, RunLimits, SharedState, WorkerClock};
use super::sim_accounts::{FaultPolicies, SimulatedAccounts};
use super::tally::GroupedRequests;
use super::world::{FinalState, Setting, World};
use evenkeel_account::company::{container, queue, table};
use evenkeel_account::{FaultPolicy, SimWorld};
use evenkeel_engine::{Engine, EngineParts, Recheck};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::large::STAGING;
use evenkeel_model::{AccountName, EntityKey};
use evenkeel_storage::TableOperation;
use evenkeel_storage::encryption::DataKeys;
use evenkeel_worker::{Mode, Rechecks};

/// Maximum time in which the backlog must drain after the storm. The slowest case is a batch of 20 jobs that panic in
/// every run. Each of them takes five attempts, ten minutes apart.
const DRAINED_WITHIN: Duration = Duration::from_hours(18);
const TENDED_AGAIN: Duration = Duration::from_mins(50);
/// Maximum time until no rechecks are left. The first recheck waits for less than half an hour. It may queue another
/// recheck, which waits twice as long.
const RECHECKED_WITHIN: Duration = Duration::from_hours(48);

/// Time after which all initial dated tables can be dropped, including those that were created in advance.
const HOURS: Duration = Duration::from_hours(3);

#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    pub world: World,
    pub seed: u64,
    /// Cuts in order of time. After each cut, the random numbers come from its seed.
    pub cuts: Vec<Cut>,
    pub allowed: RunLimits,
    /// Whether one of two accounts refuses everything for a long time, whatever the seed draws.
    pub away: bool,
    pub keeps_story: bool,
}

#[derive(Debug, Clone, Default)]
pub struct SimulationReport {
    pub world: World,
    pub seed: u64,
    pub hash: u64,
    pub violation: Option<String>,
    pub faults: FaultCounts,
    /// Number of executed operations, including `polls`.
    pub operations: u64,
    pub polls: u64,
    /// Number of transactions and range queries.
    pub together: GroupedRequests,
    pub rare_events: RareEvents,
    pub jobs: u64,
    pub sent_on: u64,
    pub done: u64,
    pub poisoned: u64,
    /// Number of deliveries after the first delivery of a message.
    pub redelivered: u64,
    pub rechecks: u64,
    /// Number of late inserts that restored a deleted entity. This is the known limit that `warrant` describes.
    pub resurrections: u64,
    pub virtual_time: Duration,
    /// Virtual time from the end of the storm until the backlog was drained.
    pub drained_after: Duration,
    /// Number of step groups of the client.
    pub step_groups: usize,
    pub story: Vec<String>,
}

pub fn run(request: &RunRequest) -> SimulationReport {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        Ok(runtime) => runtime.block_on(play(request)),
        Err(error) => SimulationReport {
            world: request.world,
            seed: request.seed,
            violation: Some(format!("cannot create the runtime: {error}")),
            ..SimulationReport::default()
        },
    }
}

async fn play(request: &RunRequest) -> SimulationReport {
    let play = SimulationRun::prepare(request).await;
    let mut drained_after = Duration::ZERO;
    tokio::select! {
        biased;
        () = play.shared_state.wrong() => {}
        () = play.acts(&mut drained_after) => {}
    }
    let shared_state = &play.shared_state;
    let (hash, virtual_time) = (shared_state.hash(), shared_state.elapsed());
    let mut records = shared_state.records();
    SimulationReport {
        world: request.world,
        seed: request.seed,
        hash,
        violation: records.violation.take(),
        faults: records.faults,
        operations: records.operations,
        polls: records.polls,
        together: records.together,
        rare_events: records.rare_event_counter.rare_events,
        jobs: records.ledger.jobs,
        sent_on: records.ledger.sent_on,
        done: records.ledger.done,
        poisoned: records.ledger.poisoned,
        redelivered: records.ledger.redelivered,
        rechecks: records.ledger.rechecks,
        resurrections: records.history.resurrections,
        virtual_time,
        drained_after,
        step_groups: play
            .steps
            .iter()
            .map(|step| step.step_group)
            .max()
            .unwrap_or(0),
        story: std::mem::take(&mut records.story),
    }
}

pub(super) struct SimulationRun {
    pub(super) shared_state: Arc<SharedState>,
    fault_plan: Arc<FaultPlan>,
    world: SimWorld,
    setting: Setting,
    catalog: Arc<Catalog>,
    pub(super) fleet: WorkerFleet,
    pub(super) client: SimulatedClient,
    operator: SimulatedClient,
    readers: Option<SimulatedReaders>,
    steps: Vec<ClientStep>,
    opens: Duration,
}

impl SimulationRun {
    async fn prepare(request: &RunRequest) -> Self {
        let seed = request.seed;
        let mut fault_plan = FaultPlan::of(seed, request.world);
        let setting = Setting::of(request.world, seed, &fault_plan);
        fault_plan.draw_slow_host(seed, setting.slow_hosts());
        if setting.has_restless_teams() {
            fault_plan.draw_slow_overlays(seed);
        }
        fault_plan.workers = fault_plan.workers.min(request.allowed.workers);
        if !setting.has_clients_that_write() {
            fault_plan.rates[FaultKind::Recreated as usize] = 0.0;
        }
        let mut steps = setting.steps(seed, &fault_plan);
        let wait = if request.allowed.without.contains(&FaultKind::Backlog) {
            Duration::ZERO
        } else {
            fault_plan.hazards.backlog
        };
        let early = fault_plan.storm / 2;
        for step in steps.iter_mut().filter(|step| step.at > early) {
            step.at += wait;
        }
        fault_plan.begin_after(wait);
        let mut abroad = FaultPlan::abroad(seed, request.world);
        abroad.begin_after(wait);
        let mut releases = setting.releases(seed, &fault_plan, &steps);
        if releases.is_some() {
            fault_plan.draw_away(&mut abroad, seed, request.away);
        }
        if let Some(releases) = releases.as_mut().filter(|_| setting.rushes()) {
            releases.rush(seed, (&mut fault_plan, &mut abroad), &mut steps);
            fault_plan.workers = fault_plan.workers.min(request.allowed.workers);
        }
        let storm = fault_plan.storm;
        for cut in &request.cuts {
            let [mut other, mut other_abroad] = [
                FaultPlan::of(cut.seed, request.world),
                FaultPlan::abroad(cut.seed, request.world),
            ];
            other.begin_after(wait);
            other_abroad.begin_after(wait);
            if !setting.has_clients_that_write() {
                other.rates[FaultKind::Recreated as usize] = 0.0;
            }
            cut_plan(&mut fault_plan, &other, *cut);
            cut_plan(&mut abroad, &other_abroad, *cut);
            cut_steps(&mut steps, *cut);
        }
        if let Some(done) = &request.allowed.step_groups {
            steps.retain(|step| done.contains(&step.step_group));
        }
        let (fault_plan, abroad) = (Arc::new(fault_plan), Arc::new(abroad));
        let shared_state = Arc::new(SharedState::new(
            fault_plan.settings.max_dequeue_count,
            request,
        ));
        shared_state.tell(|| format!("seed {seed}: {fault_plan:#?} {setting:?}"));
        shared_state.records().ledger.refused = fault_plan
            .hazards
            .refused_row
            .as_ref()
            .map(|row| row.employee.clone());
        let clock = Arc::new(WorkerClock::new(Arc::clone(&shared_state)));
        let breeze =
            |part| Arc::new(FaultlessDelays(shared_state.rng(part))) as Arc<dyn FaultPolicy>;
        let witness = Arc::clone(&shared_state);
        let world = SimWorld::with_witness(
            AccountName::main(),
            Arc::clone(&clock) as _,
            breeze(10),
            Arc::clone(&witness) as _,
        );
        let other = releases.as_ref().map(|_| {
            SimWorld::with_witness(
                evenkeel_account::company::abroad(),
                clock,
                breeze(53),
                witness,
            )
        });
        let sim_accounts = SimulatedAccounts::new(world.clone(), other);
        let mut queues_off = SignedDuration::ZERO;
        if let Some((queues, tables)) = fault_plan.hazards.service_clocks
            && shared_state.inject(if queues > tables {
                FaultKind::QueuesAhead
            } else {
                FaultKind::ServiceSkew
            })
        {
            queues_off = SignedDuration::from_secs(queues);
            shared_state.records().ledger.clocks_apart = SignedDuration::from_secs(tables - queues);
            world.set_service_clocks(queues_off, SignedDuration::from_secs(tables));
        }
        if let (Some((_, tables)), Some(other)) =
            (abroad.hazards.service_clocks, &sim_accounts.abroad)
            && shared_state.inject(FaultKind::ServiceSkew)
        {
            let (off, mut records) = (SignedDuration::from_secs(tables), shared_state.records());
            records.ledger.clocks_apart = records
                .ledger
                .clocks_apart
                .max(off.saturating_sub(queues_off));
            drop(records);
            other.set_service_clocks(SignedDuration::ZERO, off);
        }
        let seen = sim_accounts.for_caller(CLIENT, &FaultPolicies::same(breeze(11)));
        let accounts = seen.accounts();
        let client = SimulatedClient::new(Arc::clone(&shared_state), &seen);
        let account = &client.account;
        {
            let mut records = shared_state.records();
            records.history.archives = setting.history(&steps, queues_off);
            records.rare_event_counter.world = request.world;
        }
        let tables = |name| {
            accounts
                .get(&evenkeel_account::company::account_of(name).clone())
                .filter(|_| accounts.len() > 1)
                .unwrap_or(account)
                .tables
                .as_ref()
        };
        for name in setting.tables().iter().chain(setting.dated_tables()) {
            drop(tables(name).create_table(&table(name)).await);
        }
        for name in setting
            .containers()
            .iter()
            .filter(|name| releases.is_none() || **name == STAGING)
        {
            drop(account.blobs.create_container(&container(name)).await);
        }
        if let Some((index, fields)) = setting.index() {
            world.create_collection(&index, fields);
        }
        for (name, entity) in setting.founded() {
            drop(
                tables(name)
                    .apply(&table(name), &TableOperation::Insert(entity))
                    .await,
            );
        }
        for name in [JOBS, "jobs-poison", "jobs-recheck"] {
            drop(account.queues.create_queue(&queue(name)).await);
        }
        let opens = if wait.is_zero() || !shared_state.inject(FaultKind::Backlog) {
            Duration::ZERO
        } else {
            wait
        };
        let catalog = Arc::new(setting.catalog());
        let operator = SimulatedClient::new(
            Arc::clone(&shared_state),
            &sim_accounts.for_caller(OPERATOR, &FaultPolicies::same(breeze(12))),
        );
        let readers = readers::has_readers(seed).then(|| {
            sim_accounts.for_caller(
                READER,
                &FaultPolicies::same(Arc::new(SlowAnswers::on(&shared_state))),
            )
        });
        let readers = readers.and_then(|seen| {
            SimulatedReaders::of(
                &setting,
                storm,
                Arc::clone(&shared_state),
                seen,
                request.world.employees(seed),
            )
        });
        let fleet = WorkerFleet::new(
            Arc::clone(&shared_state),
            (Arc::clone(&fault_plan), abroad),
            sim_accounts,
            (Arc::clone(&catalog), releases),
        );
        fleet.found(&FaultPolicies::same(breeze(54))).await;
        Self {
            shared_state,
            fault_plan,
            world,
            setting,
            catalog,
            fleet,
            client,
            operator,
            readers,
            steps,
            opens,
        }
    }

    async fn acts(&self, drained_after: &mut Duration) {
        let stop = CancellationToken::new();
        let hosts = async {
            sleep(self.opens).await;
            join_all((0..self.fault_plan.workers).map(|slot| self.fleet.host(slot, &stop))).await
        };
        let director = async {
            let over = CancellationToken::new();
            let storm = async {
                tokio::join!(
                    self.client.play(&self.steps),
                    self.show_messages_early(),
                    self.clocks(),
                    self.releases(),
                    sleep(self.fault_plan.storm)
                );
                over.cancel();
            };
            tokio::join!(
                storm,
                self.client.run_queued_changes(&over),
                self.reads(&over)
            );
            self.shared_state.calm_down();
            let calm = self.shared_state.elapsed();
            self.drained(|| self.shared_state.panicking_messages())
                .await;
            *drained_after = self.shared_state.elapsed().saturating_sub(calm);
            self.drained(|| 0).await;
            self.shared_state.stop_panics();
            self.handle_poison().await;
            self.drained(|| 0).await;
            stop.cancel();
        };
        tokio::join!(hosts, director);
        self.nothing_left_without_faults().await;
        self.rechecks().await;
        self.sync_by_hand().await;
        self.rechecks().await;
        let now = self.last_tables().await;
        if let Err(wrong) = self.judge(now).await {
            self.shared_state.violated(wrong);
        }
    }

    async fn reads(&self, over: &CancellationToken) {
        if let Some(readers) = &self.readers {
            readers.read(over).await;
        }
    }

    async fn show_messages_early(&self) {
        let mut shows = self.fault_plan.shows.clone();
        shows.sort_unstable();
        for (nth, at) in shows.into_iter().enumerate() {
            sleep(at.saturating_sub(self.shared_state.elapsed())).await;
            if self.shared_state.is_allowed(FaultKind::ShownEarly)
                && let Some(id) = self.world.show_early(&queue(JOBS), nth)
                && self.shared_state.inject(FaultKind::ShownEarly)
            {
                self.shared_state.disturb_message(&id);
                self.shared_state
                    .tell(|| format!("FAULT message {id} is shown early"));
            }
        }
    }

    async fn clocks(&self) {
        let mut clocks = self.fault_plan.clocks.clone();
        clocks.sort_unstable();
        for (at, slot, off) in clocks {
            sleep(at.saturating_sub(self.shared_state.elapsed())).await;
            let fault = if at.is_zero() {
                FaultKind::ClockSkew
            } else {
                FaultKind::ClockJump
            };
            if let Some(clock) = self.fleet.clocks.get(slot)
                && self.shared_state.inject(fault)
            {
                clock.set_offset(off);
                self.shared_state
                    .tell(|| format!("FAULT {fault}: worker {} is {off} s off", slot + 1));
            }
        }
    }

    /// Waits until at most `but()` jobs are queued.
    async fn drained(&self, but: impl Fn() -> usize) {
        let since = self.shared_state.elapsed();
        while self.world.backlog(&queue(JOBS)).0 > but() {
            if self.shared_state.elapsed().saturating_sub(since) > DRAINED_WITHIN {
                self.shared_state.violated(format!(
                    "the backlog did not drain within {DRAINED_WITHIN:?}: {:?}",
                    self.world.messages(&queue(JOBS))
                ));
                return;
            }
            sleep(Duration::from_millis(250)).await;
        }
    }

    async fn handle_poison(&self) {
        handle_poison(
            &self.operator.account,
            &self.shared_state,
            self.fault_plan.scenario,
        )
        .await;
    }

    async fn rechecks(&self) {
        let since = self.shared_state.elapsed();
        let mut nth = 0;
        let mut tended: Option<Duration> = None;
        while self.shared_state.elapsed().saturating_sub(since) < RECHECKED_WITHIN {
            nth += 1;
            let arrival = self
                .fleet
                .sim_accounts
                .last_arrival()
                .map(|at| at.saturating_sub(self.shared_state.elapsed()));
            let visible = |name| {
                self.world
                    .backlog(&queue(name))
                    .1
                    .map(|at| self.shared_state.until(at))
            };
            let jobs = visible(JOBS);
            let Some(wait) = [jobs, visible("jobs-recheck")]
                .into_iter()
                .flatten()
                .min()
                .or(arrival)
            else {
                return;
            };
            sleep(wait + Duration::from_millis(1)).await;
            self.fleet.sim_accounts.catch_up();
            // A daemon maintains the dated tables at its start, and then every hour.
            let elapsed = self.shared_state.elapsed();
            if !self.catalog.retentions.is_empty()
                && tended.is_none_or(|at| elapsed.saturating_sub(at) >= TENDED_AGAIN)
            {
                tended = Some(elapsed);
                self.fleet
                    .tend(Arc::new(FaultlessDelays(
                        self.shared_state.rng(9_000 + nth),
                    )))
                    .await;
            }
            let mode = Mode::UntilIdle {
                quiet: Duration::from_secs(2),
                rechecks: Rechecks::Ignored,
            };
            self.fleet
                .sweep(
                    mode,
                    Arc::new(FaultlessDelays(self.shared_state.rng(5_000 + nth))),
                )
                .await;
            self.handle_poison().await;
        }
        self.shared_state.violated(format!(
            "rechecks are still queued after {RECHECKED_WITHIN:?}: {:?}",
            self.world.messages(&queue("jobs-recheck"))
        ));
    }

    /// Waits until the initial dated tables can be dropped, and maintains the tables a last time. Returns the time of
    /// this maintenance. If the world has no dated tables, returns the present time.
    async fn last_tables(&self) -> Timestamp {
        if !self.catalog.retentions.is_empty() {
            // A worker may have stopped while it archived a table. Another worker takes over only after a while, so the
            // wait is at least an hour.
            sleep(
                HOURS
                    .saturating_sub(self.shared_state.elapsed())
                    .max(Duration::from_hours(1)),
            )
            .await;
        }
        let now = self.shared_state.at(self.shared_state.elapsed());
        if !self.catalog.retentions.is_empty() {
            self.fleet
                .tend(Arc::new(FaultlessDelays(self.shared_state.rng(14))))
                .await;
            self.rechecks().await;
        }
        now
    }

    /// Sends the syncs that an operator or an audit would send. If a key conflict has poisoned a job, its client tries
    /// again, because nothing tells the client when the key becomes free.
    async fn sync_by_hand(&self) {
        let poison = self.poisoned();
        let conflicting = poison
            .iter()
            .filter(|poison| poison.error.contains("is taken by "))
            .filter_map(|poison| {
                match self.shared_state.records().ledger.expectation(
                    &poison.queue,
                    &poison.message_id,
                    &poison.body,
                ) {
                    Some(Expectation::Job(EntityJob { table, key, .. })) => {
                        Some((table.to_owned(), key))
                    }
                    Some(Expectation::Recheck) => Recheck::decode(&poison.body)
                        .ok()
                        .map(|recheck| (recheck.primary.table.to_string(), recheck.primary.key)),
                    Some(
                        Expectation::Poison(_) | Expectation::Batch(_) | Expectation::Whole(_),
                    )
                    | None => None,
                }
            });
        let mut primaries: BTreeMap<Address, bool> =
            conflicting.map(|primary| (primary, false)).collect();
        for ((table, key), thorough) in self.shared_state.records().ledger.expired() {
            *primaries.entry((table.to_owned(), key)).or_default() |= thorough;
        }
        for ((name, key), thorough) in primaries {
            let Some(table) = self
                .setting
                .tables()
                .iter()
                .chain(self.setting.dated_tables())
                .copied()
                .find(|table| *table == name)
            else {
                continue;
            };
            let json = serde_json::json!({"op": "sync", "table": table, "pk": key.pk, "rk": key.rk, "thorough": thorough});
            let asked = if thorough {
                EntityJob::thorough_sync(table, key)
            } else {
                EntityJob::sync(table, key)
            };
            if let Err(error) = self
                .operator
                .put(&json.to_string(), Expectation::Job(asked))
                .await
            {
                self.shared_state.violated(format!(
                    "a request of the operator failed although no fault is active: {error}"
                ));
            }
        }
        // A primary is not notified if a later writer has taken over its key, or if a foreign writer has changed its
        // rows. So the operator sends a full sync.
        let overwritten = if self.setting.has_last_writer() {
            self.shared_state.records().history.contenders()
        } else {
            BTreeSet::new()
        };
        let foreign_writes = self.shared_state.records().foreign_writes().clone();
        for key in overwritten.into_iter().chain(foreign_writes) {
            let step = ClientStep::new(
                Duration::ZERO,
                0,
                ClientAction::Send(ClientMessage::Thorough(EMPLOYEES, key)),
            );
            self.operator.play(&[step]).await;
        }
    }

    fn poisoned(&self) -> Vec<PoisonReport> {
        self.world
            .messages(&queue("jobs-poison"))
            .iter()
            .filter_map(|message| poison(&message.text).ok())
            .collect()
    }

    /// Checks that contention alone leaves nothing to a recheck. If no fault was injected and no message was delivered
    /// again, derived data must be correct as soon as the jobs are done. Runs with poison messages or dated tables
    /// are not checked here.
    async fn nothing_left_without_faults(&self) {
        if !faultless::ran(&self.shared_state.records())
            || !self.poisoned().is_empty()
            || !self.catalog.retentions.is_empty()
        {
            return;
        }
        let mut seen = FinalState::of(&self.setting, &self.fleet.sim_accounts, &self.world);
        faultless::forget_spared(
            &mut seen,
            self.world
                .messages(&queue("jobs-recheck"))
                .iter()
                .map(|message| message.text.as_str()),
        );
        if let Err(wrong) = self
            .judge_data(&seen, self.shared_state.at(self.shared_state.elapsed()))
            .await
        {
            self.shared_state.violated(format!(
                "a change was left to a recheck although nothing failed: {wrong}"
            ));
        }
    }

    async fn judge(&self, now: Timestamp) -> Result<(), String> {
        let lost = self.shared_state.records().ledger.lost();
        if !lost.is_empty() {
            return Err(format!(
                "lost jobs: these messages are neither done nor poisoned: {lost:?}"
            ));
        }
        self.judge_data(
            &FinalState::of(&self.setting, &self.fleet.sim_accounts, &self.world),
            now,
        )
        .await
    }

    async fn judge_data(&self, seen: &FinalState, now: Timestamp) -> Result<(), String> {
        let judgement = {
            let records = self.shared_state.records();
            let sent = sent_values(&self.steps);
            let expired = records
                .ledger
                .expired()
                .into_keys()
                .map(|(table, key)| (table.to_owned(), key))
                .collect();
            let excused = Excused {
                expired,
                staged: records.ledger.staged_for_poison(),
                sent: &sent,
            };
            self.setting.judge(seen, &excused, &records.history, now)?
        };
        self.losers_have_poison(&judgement)?;
        self.encrypted_values_decrypt(seen).await?;
        self.plans_are_empty(&judgement).await
    }

    async fn encrypted_values_decrypt(&self, seen: &FinalState) -> Result<(), String> {
        if let Some(poison) = self.poisoned().iter().find(|poison| {
            encryption::is_in_clear(&poison.body) || encryption::is_in_clear(&poison.error)
        }) {
            return Err(format!(
                "a poison message contains in plain text what must be encrypted: {} {}",
                poison.body, poison.error
            ));
        }
        let vault = self.fleet.sim_accounts.vault.as_ref();
        encryption::judge(
            &seen.tables,
            DataKeys {
                tables: self.operator.account.tables.as_ref(),
                vault,
            },
        )
        .await
    }

    fn losers_have_poison(&self, judgement: &Judgement) -> Result<(), String> {
        let poison = self.poisoned();
        let told = |key: &EntityKey| {
            let name = format!("reconciling Employees{key}");
            poison
                .iter()
                .any(|poison| poison.error.contains(&name) && poison.error.contains("is taken by "))
        };
        match judgement.losers.iter().find(|(_, key)| !told(key)) {
            None => Ok(()),
            Some((table, key)) => Err(format!(
                "{table}{key} lost a key conflict, but no poison message reports it"
            )),
        }
    }

    async fn plans_are_empty(&self, judgement: &Judgement) -> Result<(), String> {
        let breeze = || Arc::new(FaultlessDelays(self.shared_state.rng(12)));
        let seen = self.fleet.sim_accounts.for_caller(
            OPERATOR,
            &FaultPolicies {
                main: breeze(),
                abroad: breeze(),
            },
        );
        let stores = stores(&seen, seen.accounts(), seen.main.sink());
        let catalog = self.fleet.recorded(&stores).await?;
        let engine = Engine::new(EngineParts {
            stores,
            catalog,
            clock: self.fleet.clock(),
            rng: Arc::new(self.shared_state.rng(13)),
            recheck_after: self.fault_plan.settings.recheck_after,
        });
        let told = judgement.primaries.difference(&judgement.losers);
        for (name, key) in told.filter(|primary| !judgement.overwritten.contains(*primary)) {
            let primary = Primary {
                table: table(name),
                key: key.clone(),
            };
            let plan = engine
                .plan(&primary)
                .await
                .map_err(|failure| failure.chain())?;
            if !plan.in_step {
                return Err(format!(
                    "a second pass would still change something: {plan}"
                ));
            }
        }
        Ok(())
    }
}
