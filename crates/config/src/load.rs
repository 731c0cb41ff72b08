//! Loads the configuration: collects the layers, merges them, and reads the result.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::finding::{ConfigErrors, Finding};
use super::layers::Layers;
use super::origin::Origins;
use super::request::Request;
use super::section::{ReaderContext, Section};
use super::source::LayerMap;
use super::tree::{EffectiveValue, Node, Toml, effective};
use super::{accounts, catalog, encryption, events, queues, sas, settings, sinks};
use evenkeel_model::AccountName;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::settings::{HttpSettings, Settings};

#[derive(Debug, Clone)]
pub struct Configuration {
    pub settings: Settings,
    pub catalog: Catalog,
    /// Every effective value and its origin, in the order of keys.
    pub origins: Vec<EffectiveValue>,
    pub warnings: Vec<Finding>,
}

pub fn load(request: &Request) -> Result<Configuration, ConfigErrors> {
    let (tree, unread) = tree(request)?;
    read(request, &tree, unread)
}

fn tree(request: &Request) -> Result<(BTreeMap<String, Node>, Vec<Finding>), ConfigErrors> {
    let mut origins = Origins::default();
    let mut layers = Layers::of_files(request, &mut origins);
    let below = if layers.findings.is_empty() {
        merge(&layers.values, layers.origins).unwrap_or_default()
    } else {
        BTreeMap::new()
    };
    if layers.findings.is_empty() {
        layers.add_variables_and_flags(request, &below);
    }
    let Layers {
        values,
        findings,
        warnings,
        ..
    } = layers;
    if !findings.is_empty() {
        return Err(ConfigErrors {
            errors: findings,
            warnings,
        });
    }
    match merge(&values, &origins) {
        Ok(tree) => Ok((tree, warnings)),
        Err(message) => Err(ConfigErrors {
            errors: vec![Finding::new(None, "", message)],
            warnings,
        }),
    }
}

/// Loads only `[http]`, whether or not the rest of the configuration is valid.
pub fn http(request: &Request) -> Result<HttpSettings, ConfigErrors> {
    let (tree, _) = tree(request)?;
    let context = ReaderContext::new(&request.environment);
    let http = super::http::http(&Section::new(&context, String::new(), &tree, None));
    let (errors, warnings) = context.into_findings();
    http.filter(|_| errors.is_empty())
        .ok_or(ConfigErrors { errors, warnings })
}

fn merge(layers: &[LayerMap], origins: &Origins) -> Result<BTreeMap<String, Node>, String> {
    let builder = layers
        .iter()
        .fold(config::Config::builder(), |builder, layer| {
            builder.add_source(layer.clone())
        });
    let merged = builder
        .build()
        .map_err(|error| format!("cannot merge the layers of the configuration: {error}"))?;
    match Node::of(merged.cache, origins).map(|node| node.kind) {
        Some(Toml::Table(table)) => Ok(table),
        _ => Ok(BTreeMap::new()),
    }
}

fn read(
    request: &Request,
    tree: &BTreeMap<String, Node>,
    unread: Vec<Finding>,
) -> Result<Configuration, ConfigErrors> {
    let context = ReaderContext::new(&request.environment);
    let root = Section::new(&context, String::new(), tree, None);
    let accounts = accounts::read(&root, request.account_check);
    let names: Vec<AccountName> = accounts.iter().map(|(name, _)| name.clone()).collect();
    if !names.contains(&AccountName::main()) {
        root.error(
            "accounts",
            "missing; expected [accounts.main], the default account",
        );
    }
    let sinks = sinks::read(&root, &names);
    let queues = queues::read(&root, &names);
    let worker = settings::worker(&root);
    let http = super::http::http(&root);
    let migrate = settings::migrate(&root);
    let (log, traces, pace) = (
        settings::log(&root),
        settings::traces(&root),
        settings::pace(&root),
    );
    let sas = sas::read(&root, &names);
    sas::check(&root, &sas, &queues);
    let encryption = encryption::read(&root);
    let catalog = catalog::read(&root, &names, &sinks, &encryption);
    queues::check(&root, &catalog);
    let events = events::read(&root, &catalog, &queues);
    root.finish();
    let origins = effective(tree);
    let variables = super::unread::variables(&request.environment, &origins, &root);
    let (mut errors, mut warnings) = context.into_findings();
    warnings.extend(unread.into_iter().chain(variables));
    let accounts: Option<Vec<_>> = accounts.into_iter().map(|(_, account)| account).collect();
    let sinks: Option<Vec<_>> = sinks.into_iter().map(|(_, sink)| sink).collect();
    sort(&mut errors);
    sort(&mut warnings);
    match (
        accounts.zip(sinks),
        worker,
        http,
        migrate,
        log.zip(traces).zip(pace),
    ) {
        (
            Some((accounts, sinks)),
            Some(worker),
            Some(http),
            Some(migrate),
            Some(((log, traces), pace)),
        ) if errors.is_empty() => {
            let events = Arc::new(events);
            Ok(Configuration {
                settings: Settings {
                    accounts,
                    worker,
                    sinks,
                    queues,
                    http,
                    migrate,
                    log,
                    traces,
                    pace,
                    sas,
                    encryption,
                    events,
                },
                catalog,
                origins,
                warnings,
            })
        }
        _ => {
            if errors.is_empty() {
                // A reader reports each mistake in its section, but it reports nothing if no layer has the section.
                errors.push(Finding::new(
                    None,
                    "",
                    "a section is missing; expected [accounts.main], [worker], [http], [migrate], [log], [traces] and [pace]",
                ));
            }
            Err(ConfigErrors { errors, warnings })
        }
    }
}

fn sort(findings: &mut Vec<Finding>) {
    findings.sort_by(|a, b| (&a.file, a.line, &a.key).cmp(&(&b.file, b.line, &b.key)));
    findings.dedup();
}
