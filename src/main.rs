//! The main function of the evenkeel command.

use mimalloc::MiMalloc;

/// Compared with the system's allocator, this one returns freed large blocks to the system, and
/// needs fewer instructions per job.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> std::process::ExitCode {
    // With huge pages, which the allocator requests, clearing pages before their first use took a
    // fifth of a worker's processor time in batches. So huge pages are disabled. If the kernel has
    // none, disabling them fails without harm.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    evenkeel::app::main()
}
