//! Each pattern as its users see it: a catalog in TOML and jobs in JSON, on the embedded store and on Azurite.
//!
//! Every test creates an entity, changes its keys, deletes it and creates it again. The test computes the expected data itself and compares it with
//! the stored data. At the end a plan must find nothing to do for any primary.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "an unexpected error fails the test"
)]

mod client;
mod costs;
mod dated;
mod deputies;
mod derived;
mod documents;
mod each;
mod large;
mod lists;
mod logging;
mod many;
mod moving;
mod ranges;
mod searching;
mod series;
mod site;
mod sweeping;
mod together;
mod wide;
mod within;

/// Makes two tests of each pattern, one on the embedded store and one on Azurite.
macro_rules! patterns {
    ($($module:ident: $($pattern:ident)+;)+) => {
        mod embedded {
            $($(#[tokio::test]
            async fn $pattern() {
                crate::patterns::$module::$pattern(&crate::patterns::site::Site::embedded(crate::patterns::$module::CATALOG).await).await;
            })+)+
        }
        mod azurite {
            $($(#[tokio::test]
            async fn $pattern() {
                crate::patterns::$module::$pattern(&crate::patterns::site::Site::azurite(crate::patterns::$module::CATALOG).await).await;
            })+)+
        }
    };
}

patterns! {
    client:
        every_kind_of_view_is_looked_up
        a_lookup_goes_on_inside_its_list_though_others_have_come_before_it
        archives_are_looked_up_by_their_entities_keys
        an_entity_is_found_wherever_it_is
        an_entity_under_way_is_found_at_every_moment
        jobs_are_sent_and_done
        a_write_is_timed_until_it_is_found
        a_table_is_looked_up_by_its_own_keys
        rows_are_joined_with_entities_of_other_tables
        a_cached_table_is_asked_when_its_time_is_over
        many_jobs_share_messages
        invalid_requests_are_refused_before_anything_is_sent;
    costs:
        each_pattern_takes_as_many_requests_as_the_documentation_says;
    dated:
        what_is_derived_from_a_table_by_date_comes_and_goes_with_it
        what_a_table_by_date_costs;
    derived:
        what_is_shared_follows_its_primaries_through_their_lives
        the_same_job_again_changes_no_figure
        two_who_claim_one_entity_are_a_conflict_that_names_the_other
        an_entity_that_is_missing_is_not_made_and_gets_its_properties_once_it_is_there
        a_put_that_replaces_the_entity_keeps_what_a_view_has_set_on_it
        what_a_job_costs;
    documents:
        an_employee_leaves_into_a_container_and_comes_back
        an_employee_leaves_into_a_folder_and_comes_back
        metadata_over_the_limit_is_refused_with_its_name
        a_document_that_somebody_deleted_or_spoilt_is_told
        archiving_takes_as_many_requests_as_the_documentation_says;
    each:
        one_item_for_each_value_of_a_list
        a_month_is_computed_in_the_time_zone;
    large:
        large_values_follow_their_entity_through_its_life
        what_breaks_a_limit_goes_into_a_blob_whether_declared_or_not
        nothing_is_computed_from_a_pointer
        a_large_value_comes_from_a_staged_blob
        a_whole_entity_comes_from_a_staged_blob
        what_was_staged_wrongly_is_told_and_kept
        a_staged_job_that_comes_again_is_done_already
        a_value_that_changes_while_it_is_read_is_read_anew
        pointers_that_lead_nowhere_are_refused
        readers_follow_no_forged_pointer
        a_large_value_moves_with_its_entity
        a_large_value_goes_into_the_archive_and_comes_back
        large_values_lie_beside_the_document_of_their_entity_and_come_back
        large_values_lie_beside_the_file_of_their_entity_and_come_back
        what_a_document_left_behind_goes_when_its_archive_is_brought_in_step
        large_values_take_as_many_requests_as_the_documentation_says;
    lists:
        a_list_in_a_blob_follows_its_primaries_through_their_lives
        a_list_beside_primaries_whose_partition_key_is_escaped_is_looked_up
        a_full_list_refuses_members_until_others_leave_and_buckets_take_them_all
        a_put_whose_member_has_no_room_beside_it_writes_nothing
        figures_of_a_group_in_buckets_are_looked_up_as_one
        a_list_in_a_blob_that_was_edited_by_hand_is_left_alone_and_mended_by_its_members
        lists_in_blobs_take_as_many_requests_as_the_documentation_says;
    logging:
        an_event_becomes_one_line_of_its_hour
        what_waits_together_is_appended_together_and_nothing_twice
        a_log_that_somebody_deleted_or_wrote_over_is_begun_anew
        logging_takes_as_many_requests_as_the_documentation_says;
    moving:
        an_employee_moves_to_another_department_and_another_table
        what_lies_where_an_entity_is_to_go_is_left_alone
        a_redelivered_move_leaves_an_entity_that_was_moved_back
        moving_takes_as_many_requests_as_the_documentation_says;
    ranges:
        what_a_department_says_is_on_all_of_its_people_through_their_lives
        a_range_within_a_partition_ends_where_it_says
        an_entity_that_cannot_be_written_holds_up_no_other
        a_put_with_a_view_that_fails_says_what_its_department_says_by_then
        of_two_whose_ranges_overlap_the_second_is_told_and_follows_when_the_first_goes
        what_others_overwrote_is_put_back_and_what_moves_is_claimed_anew
        what_propagation_costs;
    searching:
        a_document_follows_its_primary_through_its_life
        documents_are_audited_mended_looked_up_and_made_anew
        what_the_index_refuses_is_told_with_its_entity
        a_service_that_is_busy_or_falls_silent_puts_jobs_off_and_poisons_none;
    series:
        a_day_of_24_hours_is_one_entity
        a_series_that_outgrows_its_entity_is_refused
        a_series_of_more_than_252_values_in_a_wide_table_is_read_back_whole;
    deputies:
        each_says_for_whom_and_nothing_is_written_that_is_there_already
        a_ring_ends_in_an_error_that_names_it_and_its_entities_lose_nothing
        the_last_of_two_has_the_one_that_both_name;
    sweeping:
        deleting_by_condition_takes_few_requests
        blobs_leave_with_their_entities_or_follow_them_into_the_archive
        conditions_apply_to_whole_wide_entities;
    together:
        many_patterns_on_one_table_follow_its_entities_through_their_lives
        a_department_and_its_employees_commit_together;
    within:
        a_department_among_its_people_and_they_say_what_the_other_is_through_their_lives
        a_department_and_its_people_in_two_tables_say_what_the_other_is
        two_failing_primaries_in_each_others_ranges_come_to_rest
        a_row_of_a_view_hides_no_primary_that_had_its_key
        what_it_costs_to_tell_each_other;
    wide:
        a_survey_of_300_answers_is_one_entity
        a_thousand_properties_are_archived_restored_and_moved_as_one
        two_and_a_half_mebibytes_are_one_entity
        what_does_not_fit_says_what_to_do
        a_client_may_write_the_rows_itself
        a_backfill_sees_one_entity
        a_wide_entity_takes_as_many_requests_as_the_documentation_says;
}
