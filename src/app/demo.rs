//! Prepares and runs `evenkeel demo`: creates a temporary folder with a configuration and a store,
//! and starts a worker. For an example of the guide, only creates an empty folder.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use super::condition::ProgramState;
use super::scratch::ScratchFolder;
use super::signals::Interrupts;
use super::{AppParts, signals};
use crate::cli::demo::{self, DemoArgs, DemoStage};
use crate::cli::{Exit, Format, Output, UsageError};
use evenkeel_config::Request;
use evenkeel_engine::retention::TurnTime;
use evenkeel_model::settings::HttpSettings;
use evenkeel_ops::logging::LogControl;
use evenkeel_ops::state::OpsState;
use evenkeel_ops::{Server, ServerError};
use evenkeel_rollout::{CurrentCatalog, RecordWatch};
use evenkeel_storage::Clock as _;
use evenkeel_storage::system::SystemClock;
use evenkeel_worker::{Mode, RunReport};

const DEFAULT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// Sections that `--set` may change. The demo determines all other settings, such as the accounts.
const SETTABLE: [&str; 2] = ["http.", "worker."];

/// Runs the story of the demo. Without `--once`, the worker and its HTTP server keep running after
/// the story. With `--guide`, runs an example instead.
pub(super) async fn demo(
    args: &DemoArgs,
    request: &Request,
    log: LogControl,
    interrupts: &mut Interrupts,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    match &args.guide {
        Some(None) => return demo::list_examples(out),
        Some(Some(example)) => {
            let day = SystemClock::new().now().strftime("%Y%m%d").to_string();
            return demo::run_example(example, ScratchFolder::fresh()?.path(), &day, out);
        }
        None => {}
    }
    let folder = ScratchFolder::fresh()?;
    let metrics = if args.once {
        None
    } else {
        Some(evenkeel_ops::install()?)
    };
    let mut loaded = configuration(&folder, request)?;
    if !args.once {
        loaded.settings.http = evenkeel_config::http(request)?;
    }
    let parts = AppParts::open(loaded, log)?;
    let shutdown = CancellationToken::new();
    let server = match metrics {
        Some(metrics) => Some(server(&parts, metrics, &shutdown).await?),
        None => None,
    };
    tokio::select! {
        biased;
        never = signals::obey(interrupts, &shutdown) => match never {},
        ended = Box::pin(perform(&parts, server, &folder, &shutdown, out)) => ended,
    }
}

async fn server(
    parts: &AppParts,
    metrics: PrometheusHandle,
    shutdown: &CancellationToken,
) -> anyhow::Result<HttpParts> {
    let condition = Arc::new(ProgramState::new(
        shutdown.clone(),
        Arc::clone(&parts.opened.circuits),
        Arc::clone(&parts.context.clock),
    ));
    let ops_state = parts.ops_state(&condition);
    let settings = &parts.context.settings.http;
    let server = match parts
        .server(settings, &condition, &ops_state, metrics.clone())
        .await
    {
        // If another program uses the default port, the demo listens on any free port.
        Err(ServerError::Bind { address, .. }) if address == DEFAULT_ADDRESS => {
            let any = HttpSettings {
                listen: SocketAddr::new(settings.listen.ip(), 0),
                ..settings.clone()
            };
            parts.server(&any, &condition, &ops_state, metrics).await?
        }
        bound => bound?,
    };
    Ok(HttpParts {
        server,
        condition,
        ops_state,
    })
}

struct HttpParts {
    server: Server,
    condition: Arc<ProgramState>,
    ops_state: Arc<OpsState>,
}

async fn perform(
    parts: &AppParts,
    serving: Option<HttpParts>,
    folder: &ScratchFolder,
    shutdown: &CancellationToken,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let started = parts.context.clock.monotonic();
    let migrator = parts.context.migrator()?;
    let prepared = evenkeel_rollout::prepare(
        &migrator,
        &parts.context.settings.migrate,
        parts.context.clock.as_ref(),
    )
    .await?;
    let ops_state = serving
        .as_ref()
        .map(|serving| Arc::clone(&serving.ops_state));
    let context = &parts.context;
    let current = Arc::new(CurrentCatalog::begin(
        &prepared,
        &context.catalog,
        None,
        |catalog| parts.engine(catalog),
        &context.clock,
    ));
    let worker = parts.worker(&current, ops_state.as_ref())?;
    if let Some(serving) = &serving {
        serving.condition.working(worker.status());
    }
    context
        .keeper(current.engine().catalog())
        .tend(TurnTime::Due)
        .await
        .context("could not create the dated tables")?;
    let catalog = Arc::clone(current.engine().catalog());
    let queue = parts
        .context
        .settings
        .queues
        .first()
        .context("the demonstration has a queue")?
        .name
        .clone();
    let stage = DemoStage {
        stores: parts.context.stores.clone(),
        engine: parts.engine(Arc::clone(&catalog)),
        catalog,
        clock: Arc::clone(&parts.context.clock),
        queue,
    };
    let story = async {
        let result = demo::run_story(&stage, out).await;
        let took = parts.context.clock.monotonic().saturating_sub(started);
        if let (Ok(_), Some(HttpParts { server, .. })) = (&result, serving) {
            keep_serving(server, folder, shutdown, out).await?;
        }
        shutdown.cancel();
        result.map(|exit| (exit, took))
    };
    let keeping = parts.keep(ops_state.as_deref(), shutdown);
    let watch = RecordWatch {
        migrator: &migrator,
        current: &current,
        clock: context.clock.as_ref(),
        rng: parts.rng.as_ref(),
    };
    let all = async { tokio::join!(worker.run(Mode::Forever, shutdown.clone()), story, keeping) };
    let (report, result, ()) = tokio::select! {
        biased;
        ended = all => ended,
        never = watch.keep() => match never {},
    };
    let report: RunReport = report?;
    let (exit, took) = result?;
    if out.format() == Format::Text {
        out.line(format_args!(
            "{} jobs done, {} poisoned, {} storage requests by the same worker as `evenkeel run`; the demo took {:.1} s.",
            report.done + report.skipped,
            report.poisoned,
            parts.opened.requests(),
            took.as_secs_f64()
        ))?;
    }
    Ok(exit)
}

/// Prints suggested commands, and serves HTTP until the program is stopped.
async fn keep_serving(
    server: Server,
    folder: &ScratchFolder,
    shutdown: &CancellationToken,
    out: &mut Output,
) -> anyhow::Result<()> {
    let config = folder.path().display();
    out.write_note(format_args!(
        "\nServing http://{}/ until Ctrl-C. In another terminal, try for example:",
        server.address()
    ))?;
    for command in [
        "lookup employees_by_email Email=jun.cao@contoso.com",
        "get Employees Sales 000103",
        "poison list",
        r#"submit '{"op":"archive","archive":"former_employees","pk":"Sales","rk":"000102"}'"#,
    ] {
        out.write_note(format_args!("  evenkeel --config {config} {command}"))?;
    }
    server.serve(shutdown.clone()).await;
    Ok(())
}

/// Writes the configuration to a file, so that other commands can use it too, and loads it from
/// there. `--set` applies to this run only.
fn configuration(
    folder: &ScratchFolder,
    request: &Request,
) -> anyhow::Result<evenkeel_config::Configuration> {
    if let Some(other) = request.overrides.iter().find(|flag| {
        !SETTABLE
            .iter()
            .any(|section| flag.trim_start().starts_with(section))
    }) {
        return Err(UsageError::new(format!(
            "the demo has its own configuration and accepts --set only for http.* and worker.*, found {other}"
        ))
        .into());
    }
    let share = folder.path().join("share");
    std::fs::create_dir(&share)
        .with_context(|| format!("could not create the folder {}", share.display()))?;
    let text = format!(
        "{}\n[accounts.main]\nkind = \"embedded\"\npath = {}\n\n[archives.papers_on_the_share]\nsource = \"Papers\"\nto = {{ kind = \"file\", dir = {} }}\n",
        demo::CONFIGURATION,
        quoted(&folder.path().join("contoso.db"))?,
        quoted(&share)?
    );
    folder.load(&text, &request.overrides)
}

fn quoted(path: &Path) -> anyhow::Result<String> {
    let text = path
        .to_str()
        .with_context(|| format!("the path {} is not Unicode", path.display()))?;
    // Every JSON string is also a valid TOML basic string.
    Ok(serde_json::to_string(text)?)
}
