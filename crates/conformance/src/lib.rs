//! The contract of the storage ports: one test for each rule, run on every adapter.
//!
//! Each rule is an async function over a [`World`], and its name states the rule. `contract_suite!` turns all of them into tests of one
//! adapter. If Azure Storage and Azurite differ, the stricter behaviour is the rule, and an adapter enforces it before it sends
//! anything. Rules compare ETags only for equality, assume no order of messages, follow continuations to their end, and use every name
//! once, because Azure blocks a deleted name for 40 s.
//!
//! The author of a backend provides a function that creates a world, and each rule becomes a test:
//!
//! ```no_run
//! use evenkeel_conformance::World;
//!
//! async fn world() -> World {
//!     unimplemented!("an account of the backend, and a way to let its time pass")
//! }
//!
//! evenkeel_conformance::contract_suite!(crate::world().await);
//! # fn main() {}
//! ```
//!
//! A program that runs the contract on an account gets the rules as values from [`rules`].
//!
//! If backends may differ (limits, steps of clocks, guarantees), a rule uses the world's [`Capabilities`]. The default is Azure's; others
//! are the second argument: `contract_suite!(crate::world().await, crate::CAPABILITIES)`.
//!
//! [`files_suite!`] and [`sinks_suite!`] do the same for shared files and sinks. Each module is a group of rules, named after a port of an
//! account or after one of two methods of tables with many rules: `query` and `transact`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a rule fails at an unexpected error"
)]
#![expect(missing_docs, reason = "the name of a rule states it")]

use std::any::Any;
use std::fmt::Debug;
use std::time::Duration;

use evenkeel_model::{BlobName, ContainerName, ETag, Entity, EntityKey, QueueName, Row, TableName};
use evenkeel_storage::{
    Account, ErrorClass, IfMatch, Missing, Page, Query, StoreError, TableOperation,
};
use futures::future::{BoxFuture, LocalBoxFuture};
use uuid::Uuid;

pub mod blobs;
mod capabilities;
pub mod files;
#[cfg(feature = "random")]
pub mod machine;
pub mod query;
#[cfg(feature = "random")]
pub mod queue_machine;
pub mod queues;
pub mod sinks;
#[cfg(feature = "random")]
pub mod table_machine;
pub mod tables;
pub mod transact;

pub use capabilities::Capabilities;

/// The table, queue or container does not exist.
pub const NO_CONTAINER: ErrorClass = ErrorClass::NotFound(Missing::Container);
/// The entity or blob does not exist.
pub const NO_ITEM: ErrorClass = ErrorClass::NotFound(Missing::Item);

/// An account to test, the capabilities of its backend, and a way to advance its time.
pub struct World {
    /// The stores.
    pub account: Account,
    /// The capabilities of the backend. The default is [`Capabilities::azure`].
    pub capabilities: Capabilities,
    advance_time: Box<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>,
    _keep: Box<dyn Any + Send + Sync>,
}

impl World {
    /// Creates a world. If the store has its own clock, `advance_time` waits. Otherwise it moves the clock that the store was
    /// given. `keep` lives as long as the world (a folder, a server process).
    pub fn new(
        account: Account,
        advance_time: impl Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync + 'static,
        keep: impl Any + Send + Sync,
    ) -> Self {
        Self {
            account,
            capabilities: Capabilities::azure(),
            advance_time: Box::new(advance_time),
            _keep: Box::new(keep),
        }
    }

    /// Sets the capabilities of the backend. Panics if they are less than evenkeel needs.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> Self {
        capabilities.check();
        Self {
            capabilities,
            ..self
        }
    }

    /// Advances the store's time.
    pub async fn advance_time(&self, duration: Duration) {
        (self.advance_time)(duration).await;
    }

    /// A new table.
    pub async fn table(&self) -> TableName {
        let table = table_name();
        assert!(self.account.tables.create_table(&table).await.unwrap());
        table
    }

    /// A new queue.
    pub async fn queue(&self) -> QueueName {
        let queue = queue_name();
        assert!(self.account.queues.create_queue(&queue).await.unwrap());
        queue
    }

    /// A new container.
    pub async fn container(&self) -> ContainerName {
        let container = container_name();
        assert!(
            self.account
                .blobs
                .create_container(&container)
                .await
                .unwrap()
        );
        container
    }

    /// Executes an operation that must succeed.
    pub async fn apply(&self, table: &TableName, operation: TableOperation) -> Option<ETag> {
        self.account.tables.apply(table, &operation).await.unwrap()
    }

    /// Executes an operation that must return an ETag.
    pub async fn write(&self, table: &TableName, operation: TableOperation) -> ETag {
        self.apply(table, operation)
            .await
            .expect("a write returns an ETag")
    }

    /// Executes an operation that must fail.
    pub async fn refused(&self, table: &TableName, operation: TableOperation) -> ErrorClass {
        class(self.account.tables.apply(table, &operation).await)
    }

    /// Reads a row that must exist.
    pub async fn row(&self, table: &TableName, key: &EntityKey) -> Row {
        self.find(table, key).await.expect("the row exists")
    }

    /// Reads a row.
    pub async fn find(&self, table: &TableName, key: &EntityKey) -> Option<Row> {
        self.account.tables.get(table, key, None).await.unwrap()
    }

    /// Follows a query to its end, checking each page on the way.
    pub async fn all(&self, table: &TableName, query: &Query) -> Vec<Row> {
        let mut query = query.clone();
        let mut rows = Vec::new();
        // A store may send empty pages. The limit turns a query that never ends into a failure.
        for _ in 0..100_000 {
            let Page {
                rows: page,
                continuation,
            } = self.account.tables.query(table, &query).await.unwrap();
            assert!(
                page.len()
                    <= usize::try_from(query.top.unwrap_or(self.capabilities.page_rows)).unwrap()
            );
            rows.extend(page);
            if continuation.is_none() {
                return rows;
            }
            query.continuation = continuation;
        }
        panic!("the query did not end");
    }
}

/// The class of an expected failure.
#[track_caller]
pub fn class<T: Debug>(result: Result<T, StoreError>) -> ErrorClass {
    result.expect_err("the operation fails").class
}

/// A unique table name.
pub fn table_name() -> TableName {
    TableName::new(format!("Ek{}", Uuid::new_v4().simple())).unwrap()
}

/// A unique queue name.
pub fn queue_name() -> QueueName {
    QueueName::new(format!("ek-{}", Uuid::new_v4().simple())).unwrap()
}

/// A unique container name.
pub fn container_name() -> ContainerName {
    ContainerName::new(format!("ek-{}", Uuid::new_v4().simple())).unwrap()
}

/// A blob name.
pub fn blob(name: &str) -> BlobName {
    BlobName::new(name).unwrap()
}

/// The key of an entity.
pub fn key(pk: &str, rk: &str) -> EntityKey {
    EntityKey::new(pk, rk).unwrap()
}

/// An entity without properties.
pub fn entity(pk: &str, rk: &str) -> Entity {
    Entity::new(key(pk, rk))
}

/// The condition "at this ETag".
pub fn at(etag: &ETag) -> IfMatch {
    IfMatch::Matches(etag.clone())
}

/// A rule as a value, for programs that run the contract on an account.
pub struct Rule {
    /// The group, which is a module of this crate.
    pub group: &'static str,
    /// The name, which states the rule.
    pub name: &'static str,
    /// Runs the rule. It panics if the rule does not hold.
    pub run: for<'w> fn(&'w World) -> LocalBoxFuture<'w, ()>,
}

/// Every rule of accounts except the random ones.
pub fn rules() -> Vec<Rule> {
    let mut rules = Vec::new();
    crate::account_rules! { list_rules, rules }
    rules
}

/// The rules of accounts, for `contract_suite!` and [`rules`].
#[doc(hidden)]
#[macro_export]
macro_rules! account_rules {
    ($with:ident, $of:expr) => {
        $crate::$with! { @module tables, $of,
            a_table_is_created_once
            a_table_in_another_case_is_the_same_table
            a_table_is_deleted_once_and_its_entities_with_it
            tables_are_listed_in_the_case_they_were_created_in
            an_absent_table_is_distinguished_from_an_absent_row
            every_type_survives
            doubles_survive_bit_by_bit
            integers_survive_at_their_extremes
            dates_survive_to_100_nanoseconds_from_1601_to_9999
            strings_survive_as_they_are
            values_of_maximum_length_survive
            keys_with_unusual_characters_address_their_own_row
            keys_differ_by_case
            keys_of_maximum_length_work
            an_absent_row_reads_as_none
            a_projection_returns_what_it_names
            an_insert_of_an_existing_entity_is_a_conflict
            an_insert_or_replace_creates_and_replaces
            an_insert_or_merge_creates_and_keeps_what_it_does_not_name
            a_replace_drops_what_it_does_not_name
            a_merge_keeps_what_it_does_not_name
            a_merge_may_change_the_type_of_a_property
            every_write_changes_the_etag_even_an_identical_one
            the_etag_of_a_write_is_the_one_read
            an_etag_is_never_used_again_after_a_delete
            the_timestamp_is_set_by_the_store_and_rises
            a_write_at_a_stale_etag_changes_nothing
            a_write_at_an_etag_of_an_absent_row_is_not_found
            a_write_at_any_etag_needs_an_entity
            a_write_at_any_etag_takes_any_version
            a_delete_at_the_etag_deletes
            property_names_are_checked_before_anything_is_written
            the_number_of_properties_is_checked_before_anything_is_written
            sizes_are_checked_before_anything_is_written
            characters_are_checked_before_anything_is_written
            one_of_concurrent_inserts_wins
            one_of_concurrent_replaces_at_one_etag_wins
            concurrent_merges_of_different_properties_all_succeed
            concurrent_writes_each_get_their_own_answer
            concurrent_reads_each_find_their_own_row
            an_absent_table_is_absent_for_concurrent_requests
        }
        $crate::$with! { @module transact, $of,
            a_transaction_executes_all_its_operations
            a_delete_in_a_transaction_has_no_etag
            a_transaction_works_with_unusual_keys
            a_failed_insert_is_named_by_index_and_class_and_nothing_is_written
            a_stale_etag_is_named_by_index_and_class_and_nothing_is_written
            an_absent_row_is_named_by_index_and_class_and_nothing_is_written
            the_first_and_the_last_operation_may_fail
            an_entity_twice_is_refused
            a_second_partition_is_refused
            an_empty_transaction_is_refused
            the_maximum_number_of_operations_is_accepted_and_one_more_is_refused
            more_bytes_than_a_transaction_may_have_are_refused
            a_limit_of_one_entity_is_named_by_its_index
            a_transaction_on_an_absent_table_finds_no_container
            one_of_concurrent_transactions_at_one_etag_wins
            readers_never_see_half_a_transaction
        }
        $crate::$with! { @module query, $of,
            rows_come_in_order_of_partition_key_and_row_key
            a_query_without_a_filter_reads_each_row_of_many_pages_once
            a_page_has_at_most_the_requested_rows
            a_page_of_no_rows_or_too_many_cannot_be_requested
            a_query_that_finds_nothing_ends
            a_projection_comes_with_keys_etag_and_timestamp
            a_continuation_survives_being_written_down
            a_continuation_survives_deletes_and_inserts
            a_partition_is_read_alone
            a_range_of_row_keys_is_read_with_its_bounds
            a_range_of_partition_keys_is_read_with_its_bounds
            keys_of_every_kind_are_read_by_equality_range_and_page
            a_prefix_is_a_range
            contradictory_ranges_are_empty
            a_point_filter_finds_its_row
            strings_are_filtered
            booleans_are_filtered
            numbers_are_filtered_by_their_type
            dates_are_filtered
            guids_and_bytes_are_filtered
            conditions_combine_with_and_or_not
            a_missing_property_matches_nothing
            literals_may_hold_any_character
            a_filtered_query_reads_across_many_pages
            the_maximum_number_of_comparisons_is_accepted_and_one_more_is_refused
        }
        $crate::$with! { @module queues, $of,
            a_queue_is_created_once
            a_queue_is_deleted_once
            an_absent_queue_is_not_found
            a_message_is_received_as_it_was_sent
            any_text_that_xml_carries_survives
            text_over_the_maximum_length_is_refused
            text_that_xml_cannot_carry_is_refused
            a_received_message_is_hidden
            a_hidden_message_returns_and_counts_again
            a_delayed_message_arrives_later
            an_update_to_zero_seconds_shows_the_message_at_once
            an_update_changes_text_and_receipt_and_counts_nothing
            an_update_hides_the_message_anew
            a_receipt_outlives_its_visibility_until_the_next_get
            a_receipt_ends_with_the_next_get
            a_receipt_ends_with_an_update
            a_deleted_message_is_a_lost_lease
            the_receipt_of_put_works_until_the_first_get
            a_peek_neither_hides_nor_counts
            the_count_includes_hidden_messages
            a_batch_has_at_most_the_requested_messages
            batches_and_timeouts_out_of_range_are_refused
            less_than_a_step_is_rounded_up
            a_message_expires
            a_delay_must_end_before_the_message_expires
            concurrent_gets_never_share_a_message
            queues_do_not_share_messages
        }
        $crate::$with! { @module blobs, $of,
            a_container_is_created_once
            a_container_is_deleted_once_and_its_blobs_with_it
            an_absent_container_is_distinguished_from_an_absent_blob
            a_blob_is_read_as_it_was_written
            a_blob_without_a_type_has_the_default_type
            a_blob_of_no_bytes_is_read_whole_and_by_range
            a_blob_of_5_mib_is_read_whole_and_by_range
            a_range_is_cut_at_the_end
            an_absent_blob_reads_as_none
            every_write_changes_the_etag
            every_way_of_reading_shows_the_same_etag
            a_create_of_an_existing_blob_is_a_conflict
            a_write_at_a_stale_etag_changes_nothing
            a_write_at_an_etag_needs_a_blob
            a_delete_returns_whether_the_blob_existed
            a_delete_at_a_stale_etag_deletes_nothing
            a_copy_carries_content_type_and_metadata
            a_copy_replaces_its_target
            a_copy_of_nothing_finds_no_blob
            metadata_that_cannot_be_sent_is_refused
            names_with_unusual_characters_address_their_own_blob
            an_append_blob_grows_only_at_its_end
            an_append_needs_an_append_blob
            what_is_appended_is_read_whole_and_by_range
            one_of_concurrent_appends_at_one_position_wins
            metadata_is_replaced_only_at_its_etag
            a_listing_is_ordered_and_complete
            a_listing_is_limited_to_its_prefix
            one_of_concurrent_creates_wins
            readers_never_see_a_mixture_of_two_versions
            blocks_become_a_blob_in_the_order_of_their_list
            a_new_list_may_keep_blocks_of_the_blob
            a_block_that_another_writer_dropped_is_a_lost_race
            a_block_list_is_conditional_like_a_put
            blocks_need_a_container_and_a_block_blob
            one_of_concurrent_block_lists_that_create_a_blob_wins
            a_range_of_one_version_is_read_while_it_lasts
            a_copy_is_conditional_and_may_have_its_own_metadata
        }
    };
}

/// Adds rules of a group to a list.
#[doc(hidden)]
#[macro_export]
macro_rules! list_rules {
    (@module $module:ident, $rules:expr, $($rule:ident)+) => {
        $rules.extend([$($crate::Rule {
            group: stringify!($module),
            name: stringify!($rule),
            run: |world| Box::pin($crate::$module::$rule(world)),
        }),+]);
    };
}

/// Turns every rule into a test. The first expression creates a [`World`] and may await; its paths begin with `crate`. The second, which
/// is optional, is the backend's [`Capabilities`].
#[macro_export]
macro_rules! contract_suite {
    ($world:expr) => {
        $crate::contract_suite! { $world, $crate::Capabilities::azure() }
    };
    ($world:expr, $capabilities:expr) => {
        $crate::account_rules! { contract_suite, $crate::World::with_capabilities($world, $capabilities) }
        $crate::contract_suite! { @module table_machine, $crate::World::with_capabilities($world, $capabilities), random_table_operations_agree_with_the_model }
        $crate::contract_suite! { @module queue_machine, $crate::World::with_capabilities($world, $capabilities), random_queue_operations_agree_with_the_model }
    };
    (@module $module:ident, $world:expr, $($rule:ident)+) => {
        $crate::contract_suite! { @module $module, (), $world, $($rule)+ }
    };
    (@module $module:ident, $runtime:tt, $world:expr, $($rule:ident)+) => {
        mod $module {
            $(
                #[tokio::test $runtime]
                async fn $rule() {
                    let world = $world;
                    $crate::$module::$rule(&world).await;
                }
            )+
        }
    };
}

/// Turns every rule of shared files into a test. The expression creates a [`FilesFixture`](files::FilesFixture) and may await; its paths
/// begin with `crate`. Arguments of `tokio::test` in parentheses may precede it.
#[macro_export]
macro_rules! files_suite {
    ($runtime:tt, $shared:expr) => {
        $crate::contract_suite! { @module files, $runtime, $shared,
            a_file_is_read_as_it_was_written
            a_file_is_written_under_its_condition
            a_file_is_deleted_at_its_version_only
            one_of_concurrent_writes_under_one_condition_wins
            readers_see_whole_files
            a_file_is_written_in_pieces_and_read_in_ranges
            a_file_with_a_new_mark_cannot_be_changed_by_its_old_mark
            pieces_that_end_in_an_error_leave_no_file
            one_of_concurrent_writers_of_pieces_wins
        }
    };
    ($shared:expr) => {
        $crate::files_suite! { (), $shared }
    };
}

/// Turns every rule of sinks into a test. The expression creates a [`SinkFixture`](sinks::SinkFixture) and may await; its paths begin
/// with `crate`.
#[macro_export]
macro_rules! sinks_suite {
    ($fixture:expr) => {
        $crate::contract_suite! { @module sinks, $fixture,
            a_document_is_read_as_it_was_written
            an_existing_document_is_replaced_with_every_field
            the_same_write_again_changes_nothing
            an_answered_write_is_visible_to_the_next
            many_documents_are_written_at_once
            a_failed_document_does_not_affect_the_others
            concurrent_writes_each_get_their_own_answer
            a_collection_lists_its_fields
            an_absent_collection_is_distinguished_from_an_absent_document
        }
    };
}

#[cfg(test)]
mod tests {
    /// The sources of all groups.
    const GROUPS: [&str; 9] = [
        include_str!("blobs.rs"),
        include_str!("files.rs"),
        include_str!("query.rs"),
        include_str!("queue_machine.rs"),
        include_str!("queues.rs"),
        include_str!("sinks.rs"),
        include_str!("table_machine.rs"),
        include_str!("tables.rs"),
        include_str!("transact.rs"),
    ];

    #[test]
    fn rules_are_listed_under_their_groups() {
        let rules = super::rules();
        assert!(rules.len() > 140, "{}", rules.len());
        let first = rules.first().map(|rule| (rule.group, rule.name));
        assert_eq!(first, Some(("tables", "a_table_is_created_once")));
    }

    #[test]
    fn groups_are_named_after_ports_and_methods_of_tables() {
        let (ports, tables) = (
            include_str!("../../storage/src/stores.rs"),
            include_str!("../../storage/src/tables.rs"),
        );
        for group in super::rules().iter().map(|rule| rule.group) {
            let is_port = ports.contains(&format!("pub {group}: Arc<dyn"));
            assert!(
                is_port || tables.contains(&format!("async fn {group}(")),
                "{group}"
            );
        }
    }

    #[test]
    fn every_rule_is_in_a_suite() {
        let suites: Vec<&str> = include_str!("lib.rs").split_whitespace().collect();
        let rules = GROUPS
            .iter()
            .flat_map(|group| group.split("\npub async fn ").skip(1));
        let rules: Vec<&str> = rules.filter_map(|rule| rule.split('(').next()).collect();
        assert!(rules.len() > 150, "{}", rules.len());
        let unlisted: Vec<_> = rules.iter().filter(|rule| !suites.contains(rule)).collect();
        assert!(unlisted.is_empty(), "{unlisted:?}");
    }
}
