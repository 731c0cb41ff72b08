use super::exit::EXIT_CODES;

/// The end of a command's help: examples, each a command and its effect, then the exit codes.
pub(super) fn after(examples: &[(&str, &str)]) -> String {
    let mut text = String::from("Examples:\n");
    for (command, meaning) in examples {
        text.push_str("  ");
        text.push_str(command);
        text.push_str("\n      ");
        text.push_str(meaning);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(EXIT_CODES);
    text
}
