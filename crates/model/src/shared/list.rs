//! Lists: sorted, unique members, each with a token.
//!
//! | property | content |
//! |---|---|
//! | property named by the view, then `…_1`, `…_2` | JSON arrays of members, each complete |
//! | `ek_tokens`, then `ek_tokens_1` | JSON arrays of tokens, in the order of the members |
//! | `ek_count` | number of members |
//! | `ek_list` | name of the property with the members |
//! | `ek_measures`, and the properties that it names | for a group: the definition of each measure as JSON, and the measures |
//! | `ek_view`, `ek_source` | the view, and a JSON array with its source's name |

use std::collections::BTreeMap;

use super::UnreadableDocument;
use super::pieces;
use crate::catalog::{AggregateFunction, Catalog, Form, Members, View};
use crate::item::{Owner, SOURCE_PROPERTY, VIEW_PROPERTY, shared_source_text};
use crate::{ETag, EdmValue, Entity, Member, Site, TableName, ViewName};

const TOKENS: &str = "ek_tokens";
const COUNT: &str = "ek_count";
const LIST: &str = "ek_list";
/// The property with the members of a group.
const MEMBERS: &str = "ek_members";
/// The property with the range overlays on a partition.
const RANGE_OVERLAYS: &str = "RangeOverlays";
const MEASURES: &str = "ek_measures";

/// The members of a list and their tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct List {
    /// The token of each member, in the order of the members.
    pub members: BTreeMap<Member, ETag>,
}

/// Whether a row is a list of this view, and not a copy that the view made before its kind changed.
pub fn is_list_of(view: &ViewName, entity: &Entity) -> bool {
    entity.text(VIEW_PROPERTY) == Some(view.as_str()) && Owner::of(entity).is_none()
}

/// The view of the list in a row; `None` for any other row.
pub fn list_view(entity: &Entity) -> Option<ViewName> {
    let view = entity
        .text(VIEW_PROPERTY)
        .and_then(|view| ViewName::new(view).ok());
    view.filter(|view| is_list_of(view, entity))
}

/// The members of a view's list in a row; empty if the row is not a list of that view.
pub fn members(
    site: &Site,
    view: &ViewName,
    entity: &Entity,
) -> Result<Vec<Member>, UnreadableDocument> {
    Ok(if is_list_of(view, entity) {
        List::read(site, entity)?.members.into_keys().collect()
    } else {
        Vec::new()
    })
}

/// The properties of an entity that make up a list, and the source of the list.
pub(super) struct Description {
    /// The table of the primaries.
    pub(super) source: TableName,
    /// The property with the members.
    property: String,
    /// The measures computed from the members.
    pub(super) measures: BTreeMap<String, AggregateFunction>,
}

impl Description {
    /// Returns the description that a view defines, or `None` if the view makes no lists.
    pub(super) fn of(view: &View) -> Option<Self> {
        let source = view.source.table.clone();
        let (property, measures) = match view.form() {
            Form::Lists {
                members: Members::Rendered { property, .. },
                ..
            } => (property, BTreeMap::new()),
            Form::Lists {
                members: Members::Contributions(measures),
                ..
            } => (MEMBERS, measures.clone()),
            Form::RangeOverlays(_) => (RANGE_OVERLAYS, BTreeMap::new()),
            Form::Copies { .. }
            | Form::Properties { .. }
            | Form::BlobLists(_)
            | Form::Values(_)
            | Form::Documents(_) => return None,
        };
        Some(Self {
            source,
            property: property.to_owned(),
            measures,
        })
    }

    /// Returns the description from the catalog, or the description in the list itself if the view is gone.
    pub(super) fn for_list(
        catalog: &Catalog,
        site: &Site,
        view: &ViewName,
        entity: Option<&Entity>,
    ) -> Result<Self, UnreadableDocument> {
        let declared = catalog.view_at(view, site).and_then(|view| Self::of(view));
        let description = declared.or_else(|| entity.and_then(Self::read));
        description.ok_or_else(|| UnreadableDocument::Edited {
            site: site.clone(),
            problem: format!(
                "view {view} is not in the catalog, and the list does not describe itself"
            ),
        })
    }

    /// Reads the description in the list itself.
    pub(super) fn read(entity: &Entity) -> Option<Self> {
        let [source]: [TableName; 1] = serde_json::from_str(entity.text(SOURCE_PROPERTY)?).ok()?;
        let measures: BTreeMap<String, String> = match entity.text(MEASURES) {
            None => BTreeMap::new(),
            Some(text) => serde_json::from_str(text).ok()?,
        };
        let measures = measures
            .into_iter()
            .map(|(name, measure)| Some((name, measure.parse().ok()?)))
            .collect::<Option<_>>()?;
        Some(Self {
            source,
            property: entity.text(LIST)?.to_owned(),
            measures,
        })
    }
}

impl List {
    /// Reads the list in an entity.
    pub fn read(site: &Site, entity: &Entity) -> Result<Self, UnreadableDocument> {
        Self::parse(entity).map_err(|problem| UnreadableDocument::Edited {
            site: site.clone(),
            problem,
        })
    }

    fn parse(entity: &Entity) -> Result<Self, String> {
        let property = entity
            .text(LIST)
            .ok_or_else(|| format!("{LIST} is missing"))?;
        let members: Vec<Member> = pieces::read(&entity.properties, property)?;
        let tokens: Vec<ETag> = pieces::read(&entity.properties, TOKENS)?;
        if let Some((one, next)) = members
            .iter()
            .zip(members.iter().skip(1))
            .find(|(one, next)| one >= next)
        {
            return Err(format!(
                "the members of {property} are not sorted and unique: {one} precedes {next}"
            ));
        }
        let count = match entity.get(COUNT) {
            Some(EdmValue::Int64(count)) => usize::try_from(*count).ok(),
            _ => None,
        };
        if count != Some(members.len()) || tokens.len() != members.len() {
            let count = count.map_or_else(|| "not a number".to_owned(), |count| count.to_string());
            return Err(format!(
                "{property} has {} members, {TOKENS} has {} tokens, but {COUNT} is {count}",
                members.len(),
                tokens.len()
            ));
        }
        Ok(Self {
            members: members.into_iter().zip(tokens).collect(),
        })
    }

    /// Returns the entity with its list in one piece: one property has the whole array, whatever its length, and there are no tokens.
    #[must_use]
    pub fn join(&self, mut entity: Entity) -> Entity {
        let property = entity.text(LIST).unwrap_or(MEMBERS).to_owned();
        pieces::remove(&mut entity.properties, &property);
        pieces::remove(&mut entity.properties, TOKENS);
        let members: Vec<&Member> = self.members.keys().collect();
        // Serialising texts cannot fail.
        let whole = serde_json::to_string(&members).unwrap_or_default();
        entity.properties.insert(property, EdmValue::String(whole));
        entity
    }

    /// Writes the list to an entity and replaces the list that the entity had. Other properties stay.
    pub(super) fn write(
        &self,
        mut entity: Entity,
        view: &ViewName,
        description: &Description,
    ) -> Entity {
        if let Some(before) = Description::read(&entity) {
            pieces::remove(&mut entity.properties, &before.property);
            before
                .measures
                .keys()
                .for_each(|name| drop(entity.properties.remove(name)));
            entity.properties.remove(MEASURES);
        }
        pieces::remove(&mut entity.properties, TOKENS);
        let measures = description
            .measures
            .iter()
            .filter_map(|(name, measure)| Some((name.clone(), measure.of(self.members.keys())?)));
        entity.properties.extend(measures);
        if !description.measures.is_empty() {
            let texts: BTreeMap<&String, String> = description
                .measures
                .iter()
                .map(|(name, measure)| (name, measure.to_string()))
                .collect();
            // Serialising texts cannot fail.
            entity = entity.with(MEASURES, serde_json::to_string(&texts).unwrap_or_default());
        }
        pieces::write(
            &mut entity.properties,
            &description.property,
            self.members.keys(),
        );
        pieces::write(&mut entity.properties, TOKENS, self.members.values());
        // A list never has more than 2^63 members, so the conversion cannot fail.
        entity
            .with(COUNT, i64::try_from(self.members.len()).unwrap_or(i64::MAX))
            .with(LIST, description.property.as_str())
            .with(VIEW_PROPERTY, view.as_str())
            .with(SOURCE_PROPERTY, shared_source_text(&description.source))
    }
}
