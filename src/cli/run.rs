//! Arguments of `evenkeel run`. The module `app` runs the command.

use std::time::Duration;

use clap::Args;

use super::help;

#[derive(Debug, Clone, Args)]
#[command(after_help = help::after(&[
    ("evenkeel run", "runs until SIGTERM or Ctrl-C, then drains; a second signal exits at once"),
    ("evenkeel run --until-idle --no-http", "processes what is queued and exits, for a scheduled task"),
    ("evenkeel --profile production -v run", "with config/production.toml over config/default.toml, and more log lines"),
]))]
pub struct RunArgs {
    /// Exit when every queue has stayed empty for SECS seconds, nothing is in flight and no released
    /// message is waiting
    #[arg(long, value_name = "SECS", num_args = 0..=1, require_equals = true, default_missing_value = "2", value_parser = seconds)]
    pub until_idle: Option<Duration>,
    /// With --until-idle: wait for rechecks as well (they become visible after worker.recheck_after)
    #[arg(long, requires = "until_idle")]
    pub rechecks: bool,
    /// Serve no dashboard, health or metrics
    #[arg(long)]
    pub no_http: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    // A silence of more than a day makes no sense and might overflow the clock.
    let seconds: f64 = text
        .parse()
        .map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.0..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("expected 0 to 86400 seconds".to_owned())
    }
}
