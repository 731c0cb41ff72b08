//! The main function of the evenkeel command.

use mimalloc::MiMalloc;

/// mimalloc returns freed large blocks to the system, and needs fewer instructions per job than the
/// system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> std::process::ExitCode {
    // Huge pages are disabled. The allocator requests them, and the kernel clears each page before
    // its first use: for batches, this took a fifth of a worker's processor time. On a kernel
    // without huge pages, the call fails without harm.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    evenkeel::app::main()
}
