//! The kinds of views: one file per kind, and one line in the list of `kinds!`.
//!
//! A kind declares its settings, how to read them from a section ([`ViewSection`]), the form of its
//! items ([`Form`]), and its part of the recorded definition. The form determines where and how
//! items are stored. The rest of the program depends on the form alone, never on the kind. The
//! clauses of a view (what the view writes, owns and does not support) follow from the form too,
//! and `config` compares them with the clauses of all other declarations.

mod section;

pub use denormalize_range::RangeRows;
pub use search_index::KEY_FIELD;
pub use section::{
    AlreadyReported, CompleteKind, DeclaredKind, ReadKind, ViewSection, own_property,
};

use super::definition::Definition;
use super::form::Form;
use super::place::TargetRef;
use super::view::OnConflict;

/// The interface of a kind of view to the rest of the program. `P` is the type of the view's
/// target: [`TargetRef`], or [`DatedRef`](super::DatedRef) for views of dated tables.
pub trait Kind<P> {
    /// The form of the items: where and how they are stored.
    fn form(&self) -> Form<'_, P>;
    /// Adds the kind's own keys to a definition. The kind's reader must read the same settings back
    /// from these keys.
    fn define(&self, keys: Definition, on_conflict: OnConflict) -> Definition;
    /// The key of the section that names the target.
    fn target_key(&self) -> &'static str {
        "table"
    }
}

/// Implements `map` for a kind that has a field `target` and the given other fields.
macro_rules! placed {
    ($kind:ident: $($field:ident),*) => {
        impl<P> $kind<P> {
            pub(super) fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> $kind<Q> {
                $kind { target: place(&self.target), $($field: self.$field.clone()),* }
            }
        }
    };
}

/// Generates the kinds, their modules and the methods over all of them from one list. A line names
/// a module and a type. The name of the module is the value of `kind` in the configuration. A type
/// with a field `target` has the parameter `P`. If several types share one value of `kind`, `as`
/// names the module that reads that value.
macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $(#[cfg($cfg:meta)])? $module:ident::$kind:ident $(<$place:ident>)? $(as $word:ident)?,)*) => {
        $(
            $(#[cfg($cfg)])?
            mod $module;
            $(#[cfg($cfg)])?
            pub use $module::$kind;

            $(#[cfg($cfg)])?
            impl<P> From<$kind $(<$place>)?> for ViewKind<P> {
                fn from(kind: $kind $(<$place>)?) -> Self {
                    Self::$kind(kind)
                }
            }
        )*

        /// A kind of view with its settings.
        #[derive(Debug, Clone)]
        pub enum ViewKind<P = TargetRef> {
            $($(#[doc = $doc])+ $(#[cfg($cfg)])? $kind($kind $(<$place>)?),)*
        }

        impl<P> ViewKind<P> {
            /// The value of `kind` in the configuration.
            pub const fn name(&self) -> &'static str {
                match self {
                    $($(#[cfg($cfg)])? Self::$kind(_) => kinds!(@word $module $($word)?),)*
                }
            }

            /// The kind as a trait object.
            pub fn kind(&self) -> &dyn Kind<P> {
                match self {
                    $($(#[cfg($cfg)])? Self::$kind(kind) => kind,)*
                }
            }

            /// The kind with its target replaced.
            pub fn map<Q>(&self, place: &dyn Fn(&P) -> Q) -> ViewKind<Q> {
                match self {
                    $($(#[cfg($cfg)])? Self::$kind(kind) => ViewKind::$kind(kinds!(@map kind, place $(, $place)?)),)*
                }
            }
        }

        /// The readers of all kinds, by the value of `kind`.
        pub fn declared_kinds<S: ViewSection>() -> Vec<(&'static str, ReadKind<S>)> {
            let read: [Option<(&'static str, ReadKind<S>)>; _] = [$($(#[cfg($cfg)])? kinds!(@read $module $($word)?)),*];
            read.into_iter().flatten().collect()
        }

        /// The values of `kind`, without the samples of test builds.
        pub fn kind_names() -> std::collections::BTreeSet<&'static str> {
            let names: [&'static str; _] = [$($(#[cfg($cfg)])? kinds!(@word $module $($word)?)),*];
            names.into_iter().filter(|name| !name.starts_with("sample_")).collect()
        }
    };
    (@word $module:ident) => { stringify!($module) };
    (@word $module:ident $word:ident) => { stringify!($word) };
    (@read $module:ident) => { Some((stringify!($module), $module::read)) };
    (@read $module:ident $word:ident) => { None };
    (@map $kind:ident, $to:ident, P) => { $kind.map($to) };
    (@map $kind:ident, $to:ident) => { $kind.clone() };
}

kinds! {
    /// Copies of primaries under another key.
    secondary_index::SecondaryIndex<P>,
    /// Lists of the primaries that share a value, in rows.
    index_entity::IndexEntity<P>,
    /// Lists of the primaries that share a value, in blobs.
    blob_lists::BlobLists as index_entity,
    /// Properties that are set on another entity.
    denormalize::Denormalize<P>,
    /// Properties that are set on all entities of a range.
    denormalize_range::DenormalizeRange<P> as denormalize,
    /// Aggregate values of groups.
    aggregate::Aggregate<P>,
    /// Large values in blobs.
    large_entity::LargeEntity,
    /// Documents of a search service.
    search_index::SearchIndex,
    /// Rows of a table in a database.
    sql_table::SqlTable,
    /// Events to a receiver.
    webhook::WebhookEvents,
    /// Copies with partition key and row key exchanged: a sample, in test builds only.
    #[cfg(feature = "samples")]
    sample_exchanged::ExchangedKeys<P>,
}
