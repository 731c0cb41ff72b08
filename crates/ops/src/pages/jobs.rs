use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::{Html, Response};
use serde::Deserialize;

use super::layout::{self, NavEntry, PageContext};
use crate::api::{Api, Problem, ending, shown_jobs};
use crate::guard::Visitor;
use crate::numbers::{self, Counted as _, Measure as _};
use crate::state::{JobFilter, JobRecord};
use evenkeel_worker::DeliveryStatus;

/// Jobs per page.
const PAGE: usize = 50;

#[derive(Debug, Default, Deserialize)]
pub(super) struct JobSearch {
    #[serde(default)]
    key: String,
    #[serde(default)]
    outcome: String,
    before: Option<u64>,
    /// Shows only this job, with all its keys.
    number: Option<u64>,
}

#[derive(Template)]
#[template(path = "jobs.html", blocks = ["list"])]
struct JobsPage {
    search: JobSearch,
    jobs: Vec<JobRecord>,
    /// The number of the last job on the page; `None` if the page is not full.
    last: Option<u64>,
}

impl JobsPage {
    fn find(api: &Api, search: JobSearch, visitor: Visitor) -> Result<Self, Problem> {
        let ending = Some(search.outcome.as_str())
            .filter(|name| !name.is_empty())
            .map(ending)
            .transpose()?;
        let filter = JobFilter {
            text: search.key.clone(),
            ending,
            before: search.before,
            number: search.number,
        };
        let jobs = shown_jobs(api, &filter, PAGE, visitor);
        let last = jobs
            .last()
            .filter(|_| jobs.len() == PAGE)
            .map(|last| last.number);
        Ok(Self { search, jobs, last })
    }
}

/// The CSS class of an outcome.
fn state(ending: &str) -> &'static str {
    match ending {
        "done" => "good",
        "skipped" => "calm",
        "poisoned" => "bad",
        _ => "warn",
    }
}

pub(super) async fn page(
    State(api): State<Api>,
    Query(search): Query<JobSearch>,
    Extension(context): Extension<PageContext>,
) -> Response {
    match JobsPage::find(&api, search, context.visitor) {
        Ok(body) => layout::page("Recent jobs", Some(NavEntry::Jobs), &body, &context),
        Err(problem) => layout::problem(NavEntry::Jobs, &problem, &context),
    }
}

pub(super) async fn part(
    State(api): State<Api>,
    Query(search): Query<JobSearch>,
    Extension(context): Extension<PageContext>,
) -> Result<Html<String>, Problem> {
    Ok(Html(
        JobsPage::find(&api, search, context.visitor)?
            .as_list()
            .to_string(),
    ))
}
