//! Derives the items of a primary.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    aggregate, denormalize, denormalize_range, documents, index_entity, large_entity,
    secondary_index,
};
use crate::catalog::{
    BlobLists, Catalog, DenormalizeRange, Documents, Form, Members, OnConflict, RowForm, TableRef,
    ValueLocation, View,
};
use crate::document::PlaceError;
use crate::entity::EntityError;
use crate::job::Primary;
use crate::large::{Pointer, ValueFolder};
use crate::range_overlay;
use crate::sink::{self, FieldError};
use crate::stored::FormatError;
use crate::template::{RenderError, Template};
use crate::{
    AccountName, ETag, EdmValue, Entity, EntityKey, ItemAddress, Part, SinkDocument, Site,
    ViewName, limits, odata,
};

/// An item that should exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The content of the item.
    pub content: Content,
    /// The generation of the view that derives the item.
    pub generation: u32,
    /// What happens if another primary already has an item with the same key.
    pub on_conflict: OnConflict,
}

/// The content of an item.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A row that names its owner.
    Row(Entity),
    /// A blob with a large value of the primary. The primary's row contains this pointer, and the
    /// metadata of the blob names the owner. The value itself cannot be derived from the row.
    Value(Pointer),
    /// A member of a list. The item's address contains the whole member.
    Member,
    /// Properties on an entity of another owner.
    Properties(BTreeMap<String, EdmValue>),
    /// A document of a sink.
    Document(SinkDocument),
}

impl Content {
    /// Whether the item can be created only by a run that supplies its content.
    pub const fn needs_supplied_content(&self) -> bool {
        matches!(self, Self::Value(_))
    }

    /// Whether an existing item at version `etag` need not be written again. `listed` is the
    /// version in the primary's footprint.
    ///
    /// - A row is always written, because the write fences off workers that hold an older state of
    ///   the primary.
    /// - The address of a member or a large value determines its content. The removal of such an
    ///   item is announced first. So if no change is announced and the item is at its listed
    ///   version, it need not be written.
    /// - The token of properties contains a digest of the values, and the version of a sink's
    ///   document is a hash of the content. So other content has another version. A write of
    ///   another version is announced first.
    pub fn is_unchanged_at(&self, etag: &ETag, listed: Option<&ETag>) -> bool {
        match self {
            Self::Row(_) => false,
            Self::Member | Self::Value(_) => listed == Some(etag),
            Self::Properties(values) => {
                listed == Some(etag) && etag.is_token_of(odata::digest(values))
            }
            Self::Document(document) => document.token() == *etag,
        }
    }

    /// A new token for a part with this content.
    pub fn token(&self, random: u64) -> ETag {
        match self {
            Self::Properties(values) => ETag::token_of(random, odata::digest(values)),
            Self::Row(_) | Self::Value(_) | Self::Member | Self::Document(_) => ETag::token(random),
        }
    }

    /// Whether the item consists of properties on an entity of another owner. Other writers may
    /// change or remove these properties, so the entity is read before the item counts as
    /// unchanged. Every write of the properties is announced.
    pub const fn is_on_foreign_entity(&self) -> bool {
        matches!(self, Self::Properties(_))
    }

    /// Whether the properties that were found on another owner's entity differ from the derived
    /// properties.
    pub fn is_overwritten_by(&self, found: &BTreeMap<String, EdmValue>) -> bool {
        matches!(self, Self::Properties(values) if !odata::same_properties(found, values))
    }
}

impl Item {
    /// Whether a document that was read from the sink has the content of this item.
    pub fn matches(&self, found: &SinkDocument) -> bool {
        matches!(&self.content, Content::Document(document) if document.matches(found))
    }
}

/// The items that the views of a table derive from one primary.
#[derive(Debug, Default, PartialEq)]
pub struct Derivation {
    /// The items that should exist, by address.
    pub items: BTreeMap<ItemAddress, Item>,
    /// The views whose items could not be derived, each with the reason. `items` contains no items
    /// of these views, and their existing items are not changed.
    pub failed: BTreeMap<ViewName, Box<DeriveError>>,
}

/// The error if a view's items cannot be derived from a primary. It is a permanent error of the
/// job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeriveError {
    /// A template of the view cannot be rendered.
    #[error("view {view}: cannot render {part} for {primary}")]
    Render {
        /// The view.
        view: ViewName,
        /// The key of the template in the section.
        part: &'static str,
        /// The primary.
        primary: Primary,
        /// The cause.
        #[source]
        source: RenderError,
    },
    /// The derived row breaks a limit of the service.
    #[error("view {view}: cannot store the item derived from {primary}")]
    Item {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The violated limit.
        #[source]
        source: EntityError,
    },
    /// A property has a type that the aggregate function does not support.
    #[error(
        "view {view}: property {property:?} of {primary} is an {found}; sum needs a number, min and max a number or an Edm.DateTime"
    )]
    Contribution {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The property.
        property: String,
        /// The type of the property.
        found: &'static str,
    },
    /// The name of a blob breaks a limit of the service.
    #[error("view {view}: cannot make a valid blob name for {primary}")]
    Place {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The cause.
        #[source]
        source: PlaceError,
    },
    /// The view would compute from a value that is in a blob.
    #[error(
        "view {view}: cannot compute from property {property:?} of {primary}: its value is in a blob. Write a shorter value"
    )]
    InBlob {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The property.
        property: String,
    },
    /// A member is too long.
    #[error(
        "view {view}: the member of {primary} is too long: {units} UTF-16 units as JSON, at most 2,048"
    )]
    LongMember {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The length of the member in UTF-16 units, as JSON.
        units: usize,
    },
    /// A contribution is too long.
    #[error(
        "view {view}: the contribution of {primary} is too long: {units} UTF-16 units as JSON, at most {}. Use fewer properties in set",
        limits::CONTRIBUTION_UTF16_UNITS
    )]
    LongContribution {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The length of the contribution in UTF-16 units, as JSON.
        units: usize,
    },
    /// A pointer has an unknown version.
    #[error("cannot read the pointers to the large values of {primary}")]
    Pointer {
        /// The primary.
        primary: Primary,
        /// The error in the pointer.
        #[source]
        source: FormatError,
    },
    /// A range overlay is too long.
    #[error(
        "view {view}: range overlay of {primary} is too large: {units} UTF-16 units, at most {}",
        limits::RANGE_OVERLAY_UTF16_UNITS
    )]
    LongRangeOverlay {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The length of the range overlay in UTF-16 units, as JSON.
        units: usize,
    },
    /// An end of a range contains a character that the service and the embedded store order
    /// differently.
    #[error(
        "view {view}: {part} of {primary} contains {found:?}; expected only characters below U+D7FE"
    )]
    RangeEnd {
        /// The view.
        view: ViewName,
        /// The key of the range's end in the section.
        part: &'static str,
        /// The primary.
        primary: Primary,
        /// The character.
        found: char,
    },
    /// A value cannot be represented in a document.
    #[error("view {view}: cannot write field {field:?} of the document of {primary}")]
    Field {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The field.
        field: String,
        /// The cause.
        #[source]
        source: FieldError,
    },
    /// Two views derive the same row.
    #[error(
        "views {first} and {second} both derive {address} from {primary}. Give one of them another key"
    )]
    SameRow {
        /// One view.
        first: ViewName,
        /// The other view.
        second: ViewName,
        /// The row.
        address: ItemAddress,
        /// The primary.
        primary: Primary,
    },
    /// A view derives a row with the table and key of the primary itself.
    #[error(
        "view {view} derives the row of {primary} itself. Give it another table, or a literal prefix in row_key"
    )]
    OwnRow {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
    },
    /// There are more items than a footprint can list.
    #[error("{primary} has too many items: {count}, at most 1,000")]
    TooMany {
        /// The primary.
        primary: Primary,
        /// The number of items.
        count: usize,
    },
}

/// Whether a view derives a copy with this key from the current state of a primary.
pub fn has_copy_at(view: &View, primary: &Primary, entity: &Entity, key: &EntityKey) -> bool {
    let deriving = ViewContext {
        view,
        primary,
        entity,
    };
    let Form::Copies { rows, .. } = view.form() else {
        return false;
    };
    deriving.applies(&BTreeSet::new()) == Some(true)
        && deriving.keys(&rows).is_ok_and(|keys| keys.contains(key))
}

struct Derived {
    account: AccountName,
    site: Site,
    part: Option<Part>,
    content: Content,
}

pub(super) struct ViewContext<'a> {
    pub(super) view: &'a View,
    pub(super) primary: &'a Primary,
    pub(super) entity: &'a Entity,
}

impl ViewContext<'_> {
    /// Whether the primary satisfies the view's condition. `None` if the answer depends on the
    /// `unknown` properties.
    fn applies(&self, unknown: &BTreeSet<&str>) -> Option<bool> {
        self.view.when.as_ref().map_or(Some(true), |when| {
            when.decided(self.entity, &|name| unknown.contains(name))
        })
    }

    /// Whether the view may derive items from the primary, ignoring the view's condition. It may
    /// not if a property of the items' keys is missing, unless the property is in `unknown`.
    /// Otherwise it may if an item is computed from an `unknown` property, or if the present values
    /// give items.
    fn may_have_items(&self, unknown: &BTreeSet<&str>) -> bool {
        let keys = self
            .view
            .rows()
            .into_iter()
            .flat_map(|rows| [rows.partition_key, rows.row_key]);
        let is_missing = |name: &str| {
            let is_known = !unknown.contains(name) && !["PartitionKey", "RowKey"].contains(&name);
            is_known
                && self
                    .entity
                    .get(name)
                    .is_none_or(|value| matches!(value, EdmValue::String(text) if text.is_empty()))
        };
        if keys.flat_map(Template::properties).any(is_missing) {
            return false;
        }
        let is_computed_from_unknown = self
            .view
            .composed_of()
            .iter()
            .any(|name| unknown.contains(name));
        is_computed_from_unknown || !matches!(self.items(), Ok(items) if items.is_empty())
    }

    /// Returns a property in `in_blobs` that is an input of the view's items. The view would
    /// compute from the property's pointer instead of its value.
    fn computed_from_pointer(&self, in_blobs: &BTreeSet<&str>) -> Option<&str> {
        if in_blobs.is_empty() {
            return None;
        }
        let computed = match self.applies(in_blobs) {
            Some(true) => self.view.composed_of(),
            None => self.view.computed(),
            Some(false) => return None,
        };
        computed
            .into_iter()
            .find(|name| in_blobs.contains(*name))
            .filter(|_| self.may_have_items(in_blobs))
    }

    /// The keys of the rows that hold the primary's items: one key, one key for each value of a
    /// list, or none.
    fn keys(&self, rows: &RowForm<'_>) -> Result<BTreeSet<EntityKey>, Box<DeriveError>> {
        let templates = [
            ("partition_key", rows.partition_key),
            ("row_key", rows.row_key),
        ];
        let key = |each: Option<(&str, &EdmValue)>| {
            let [pk, rk] = templates.map(|(part, template)| {
                let rendered = match each {
                    None => template.render_as(rows.escaping, self.entity),
                    Some((property, value)) => {
                        template.render_with_value(rows.escaping, self.entity, property, value)
                    }
                };
                rendered.map_err(|source| self.render_error(part, source))
            });
            Ok(pk?.zip(rk?).map(|(pk, rk)| EntityKey { pk, rk }))
        };
        let Some((part, field, list)) = templates.into_iter().find_map(|(part, template)| {
            let field = template.each()?;
            Some((part, field, field.list()?))
        }) else {
            return Ok(key(None)?.into_iter().collect());
        };
        let property = field.property();
        let values = list
            .values(self.entity, property)
            .map_err(|message| self.render_error(part, RenderError { message }))?;
        values
            .iter()
            .filter_map(|value| key(Some((property, value))).transpose())
            .collect()
    }

    fn items(&self) -> Result<Vec<Derived>, Box<DeriveError>> {
        let derived = match self.view.form() {
            Form::Copies { rows, select } => self.in_rows(&rows, |key| {
                Ok(Some((
                    None,
                    Content::Row(secondary_index::copy(self, select, key)),
                )))
            })?,
            Form::Lists { rows, members } => self.in_rows(&rows, |_| {
                let member = match members {
                    Members::Rendered { templates, .. } => {
                        index_entity::membership(self, templates)?
                    }
                    Members::Contributions(measures) => {
                        Some(aggregate::contribution(self, measures)?)
                    }
                };
                Ok(member.map(|member| (Some(Part::Member(member)), Content::Member)))
            })?,
            Form::Properties { rows, set } => self.in_rows(&rows, |key| {
                Ok(denormalize::values(self, set, key)?
                    .map(|values| (Some(Part::Properties), Content::Properties(values))))
            })?,
            Form::BlobLists(lists) => self.in_list(lists)?.into_iter().collect(),
            Form::RangeOverlays(range) => self.range_overlay(range)?.into_iter().collect(),
            Form::Documents(documents) => vec![self.in_sink(documents)?],
            Form::Values(large) => {
                let location = ValueLocation::Blobs {
                    account: large.account.clone(),
                    container: large.container.clone(),
                };
                large_entity::blobs(self)?
                    .into_iter()
                    .filter_map(|pointer| value(&location, pointer))
                    .collect()
            }
        };
        Ok(derived)
    }

    /// One item for each key that the view derives from the primary.
    fn in_rows(
        &self,
        rows: &RowForm<'_>,
        item: impl Fn(&EntityKey) -> Result<Option<(Option<Part>, Content)>, Box<DeriveError>>,
    ) -> Result<Vec<Derived>, Box<DeriveError>> {
        let derived = |key: EntityKey| {
            let item = item(&key)?;
            let TableRef { account, table } = rows.target.at(&key.pk);
            let site = Site::Row { table, key };
            Ok(item.map(|(part, content)| Derived {
                account,
                site,
                part,
                content,
            }))
        };
        self.keys(rows)?
            .into_iter()
            .filter_map(|key| derived(key).transpose())
            .collect()
    }

    fn in_list(&self, lists: &BlobLists) -> Result<Option<Derived>, Box<DeriveError>> {
        let name = lists.name.of(self.entity).map_err(|source| match source {
            PlaceError::Render(source) => self.render_error("name", source),
            PlaceError::Name(_) => Box::new(DeriveError::Place {
                view: self.view.name.clone(),
                primary: self.primary.clone(),
                source,
            }),
        })?;
        let (Some(name), Some(member)) = (name, index_entity::membership(self, &lists.member)?)
        else {
            return Ok(None);
        };
        let account = lists.accounts.holder(name.as_str()).clone();
        let site = Site::Blob {
            container: lists.container.clone(),
            name,
        };
        Ok(Some(Derived {
            account,
            site,
            part: Some(Part::Member(member)),
            content: Content::Member,
        }))
    }

    fn in_sink(&self, documents: &Documents) -> Result<Derived, Box<DeriveError>> {
        let content = Content::Document(documents::document(self, documents)?);
        let site = Site::Document {
            collection: documents.collection.clone(),
            key: sink::key(self.primary),
        };
        Ok(Derived {
            account: documents.sink.clone(),
            site,
            part: None,
            content,
        })
    }

    fn range_overlay(&self, range: &DenormalizeRange) -> Result<Option<Derived>, Box<DeriveError>> {
        let overlay = denormalize_range::range_overlay(self, range)?;
        Ok(overlay.map(|overlay| Derived {
            account: overlay.range.account.clone(),
            site: Site::Row {
                table: range_overlay::table(),
                key: range_overlay::entity_key(
                    &self.view.name,
                    &overlay.range.table,
                    &overlay.range.pk,
                ),
            },
            part: Some(Part::Member(overlay.member())),
            content: Content::Member,
        }))
    }

    pub(super) fn render_error(&self, part: &'static str, source: RenderError) -> Box<DeriveError> {
        Box::new(DeriveError::Render {
            view: self.view.name.clone(),
            part,
            primary: self.primary.clone(),
            source,
        })
    }
}

fn value(location: &ValueLocation, pointer: Pointer) -> Option<Derived> {
    Some(Derived {
        account: location.account().clone(),
        site: location.site(&pointer)?,
        part: None,
        content: Content::Value(pointer),
    })
}

/// The items that should exist because of a primary; none if the primary is absent. A view whose
/// items cannot be derived is reported in `failed`. The whole derivation is an error if there are
/// more items than a footprint can list.
pub fn derive(
    catalog: &Catalog,
    source: &TableRef,
    entity: Option<&Entity>,
) -> Result<Derivation, Box<DeriveError>> {
    let mut derivation = Derivation::default();
    let Some(entity) = entity else {
        return Ok(derivation);
    };
    let primary = Primary {
        table: source.table.clone(),
        key: entity.key.clone(),
    };
    let in_blobs = large_entity::in_blobs(entity);
    for view in catalog.views_of(source) {
        let context = ViewContext {
            view,
            primary: &primary,
            entity,
        };
        if let Some(property) = context.computed_from_pointer(&in_blobs) {
            let (view, property) = (view.name.clone(), property.to_owned());
            derivation.failed.insert(
                view.clone(),
                Box::new(DeriveError::InBlob {
                    view,
                    primary: primary.clone(),
                    property,
                }),
            );
            continue;
        }
        if view.when.as_ref().is_some_and(|when| !when.holds(entity)) {
            continue;
        }
        match derive_view(catalog, source, &context, &derivation.items) {
            Ok(items) => derivation.items.extend(items),
            Err(error) => drop(derivation.failed.insert(view.name.clone(), error)),
        }
    }
    let count = derivation.items.len();
    if count > limits::ITEMS_PER_PRIMARY {
        Err(Box::new(DeriveError::TooMany { primary, count }))
    } else {
        Ok(derivation)
    }
}

/// The properties from which views, rules and archives compute, for an entity that is about to be
/// written. The values of these properties must stay in the row, because nothing can be computed
/// from a pointer. A view that derives no item from the entity adds no properties. The result is
/// empty if no value may be moved to a blob.
pub fn computed_from(catalog: &Catalog, source: &TableRef, entity: &Entity) -> BTreeSet<String> {
    let (in_blobs, may_go) = (
        large_entity::in_blobs(entity),
        large_entity::may_move_to_blob(entity),
    );
    if may_go.is_empty() {
        return BTreeSet::new();
    }
    let mut names = catalog.computed_outside_views(source);
    let primary = Primary {
        table: source.table.clone(),
        key: entity.key.clone(),
    };
    for view in catalog.views_of(source) {
        let context = ViewContext {
            view,
            primary: &primary,
            entity,
        };
        // A view that computes from none of these values need not be derived.
        if view.computed().is_disjoint(&may_go) || !context.may_have_items(&may_go) {
            continue;
        }
        // The result of a condition that does not depend on these values stays the same when they
        // are moved to blobs.
        if let Some(when) = view
            .when
            .as_ref()
            .filter(|_| context.applies(&may_go).is_none())
        {
            names.extend(when.compared().into_iter().map(str::to_owned));
        }
        if context.applies(&in_blobs) != Some(false) {
            names.extend(view.composed_of().into_iter().map(str::to_owned));
        }
    }
    names
}

/// The items of one view, which must not collide with the items of other views (`others`).
fn derive_view(
    catalog: &Catalog,
    source: &TableRef,
    context: &ViewContext<'_>,
    others: &BTreeMap<ItemAddress, Item>,
) -> Result<BTreeMap<ItemAddress, Item>, Box<DeriveError>> {
    let ViewContext { view, primary, .. } = context;
    let mut items: BTreeMap<ItemAddress, Item> = BTreeMap::new();
    for Derived {
        account,
        site,
        part,
        content,
    } in context.items()?
    {
        let address = ItemAddress {
            view: view.name.clone(),
            account,
            site,
            part,
        };
        let primary = || (*primary).clone();
        if address.site.row() == Some((&source.table, &context.primary.key))
            && address.account == source.account
        {
            return Err(Box::new(DeriveError::OwnRow {
                view: view.name.clone(),
                primary: primary(),
            }));
        }
        if let Some(other) = others
            .keys()
            .chain(items.keys())
            .find(|other| collides(other, &address))
        {
            let (first, second) = (other.view.clone(), view.name.clone());
            return Err(Box::new(DeriveError::SameRow {
                first,
                second,
                address,
                primary: primary(),
            }));
        }
        if let Content::Row(entity) = &content {
            entity.check().map_err(|source| {
                Box::new(DeriveError::Item {
                    view: view.name.clone(),
                    primary: primary(),
                    source,
                })
            })?;
        }
        items.insert(
            address,
            Item {
                content,
                generation: catalog.generations.of(&view.name),
                on_conflict: view.on_conflict,
            },
        );
    }
    Ok(items)
}

/// The items of an archived document: only the large values in this folder.
pub fn derive_archived(
    catalog: &Catalog,
    primary: &Primary,
    view: &ViewName,
    location: &ValueLocation,
    folder: &ValueFolder,
    entity: Option<&Entity>,
) -> Result<BTreeMap<ItemAddress, Item>, Box<DeriveError>> {
    let pointers = entity
        .map(|entity| large_entity::owned(primary, folder, entity))
        .transpose()?
        .unwrap_or_default();
    if pointers.len() > limits::ITEMS_PER_PRIMARY {
        return Err(Box::new(DeriveError::TooMany {
            primary: primary.clone(),
            count: pointers.len(),
        }));
    }
    let generation = catalog.generations.of(view);
    let item = |Derived {
                    account,
                    site,
                    part,
                    content,
                }| {
        (
            ItemAddress {
                view: view.clone(),
                account,
                site,
                part,
            },
            Item {
                content,
                generation,
                on_conflict: OnConflict::default(),
            },
        )
    };
    Ok(pointers
        .into_iter()
        .filter_map(|pointer| value(location, pointer))
        .map(item)
        .collect())
}

/// Whether two items have the same site and therefore cannot both exist. There is one exception:
/// two views can set properties on the same entity.
fn collides(one: &ItemAddress, other: &ItemAddress) -> bool {
    let both_set = one.part == Some(Part::Properties) && other.part == Some(Part::Properties);
    one.account == other.account && one.site == other.site && !both_set
}
