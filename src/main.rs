//! The evenkeel command.

fn main() -> std::process::ExitCode {
    evenkeel::app::main()
}
