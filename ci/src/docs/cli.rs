//! Help texts: `llmrt --help`, then that of every command without the options that all commands share. They are the kept
//! ones, which a test of `cli/src/args/mod.rs` compares with clap's.

use super::Llmrt;
use crate::root;
use std::fmt::Write as _;

/// The heading of the options that every command repeats.
const SHARED: &str = "Devices:";

/// One file per command.
const TEXTS: &str = "cli/src/help";

pub fn body(_llmrt: &Llmrt) -> Result<String, String> {
    let main = kept("llmrt")?;
    let mut page = format!("```text\n{}\n```\n", main.trim_end());
    let _ =
        writeln!(page, "\nThe options under \"{SHARED}\" go with every command and are not repeated below.");
    for name in commands(&main) {
        let help = kept(&name)?;
        page += &section(&format!("## {name}"), &help);
        for action in commands(&help) {
            page += &section(&format!("### {name} {action}"), &kept(&format!("{name}-{action}"))?);
        }
    }
    Ok(page)
}

fn section(title: &str, help: &str) -> String {
    format!("\n{title}\n\n```text\n{}\n```\n", without_section(help, SHARED).trim_end())
}

fn kept(name: &str) -> Result<String, String> {
    let file = format!("{TEXTS}/{name}.txt");
    std::fs::read_to_string(root().join(&file)).map_err(|e| format!("{file}: {e}"))
}

/// The names under "Commands:", but `help`.
fn commands(help: &str) -> Vec<String> {
    let rows = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let rows = rows.take_while(|line| !line.is_empty());
    // Continued descriptions are indented deeper.
    let names = rows.filter(|row| !row.starts_with("   ")).filter_map(|row| row.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// A help text without one of its sections: a heading at the line's start, and what is indented or empty below it.
fn without_section(help: &str, heading: &str) -> String {
    let mut is_inside = false;
    let kept = help.lines().filter(|line| {
        if !line.is_empty() && !line.starts_with(' ') {
            is_inside = *line == heading;
        }
        !is_inside
    });
    kept.map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_the_rows_below_their_heading() {
        let help = "Usage: x\n\nCommands:\n  run    Generate\n           text\n  plan   Compute\n  help   Print\n\nOptions:\n  -v\n";
        assert_eq!(commands(help), ["run", "plan"]);
    }

    #[test]
    fn a_section_ends_where_the_next_heading_begins() {
        let help = "Options:\n  -n  \n\nDevices:\n  --x\n\n  --y\n\nExamples:\n  z\n";
        assert_eq!(without_section(help, "Devices:"), "Options:\n  -n\n\nExamples:\n  z\n");
    }
}
