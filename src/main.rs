//! The main function of the evenkeel command.

use mimalloc::MiMalloc;

/// mimalloc returns freed large blocks to the system, and needs fewer instructions per job than the
/// system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> std::process::ExitCode {
    // The allocator requests huge pages. Clearing them before their first use took a fifth of a
    // worker's processor time in batches, so they are disabled. On a kernel without huge pages, the
    // call fails without harm.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    evenkeel::app::main()
}
