//! Ctrl-C: the command reports what is done so far, and how to continue.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::cli::place::{Place, json_lines, says};

const JOB: &str = r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"7"}"#;

fn start(place: &Place, args: &[&str]) -> Child {
    place
        .command(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Interrupts a program as a terminal does. Returns the exit code and the standard error.
fn interrupt(mut child: Child, mut aside: impl std::io::Read) -> (Option<i32>, String) {
    // Every shell has `kill` built in. Not every machine has it as a program.
    assert!(
        Command::new("sh")
            .args(["-c", &format!("kill -INT {}", child.id())])
            .status()
            .unwrap()
            .success()
    );
    let mut text = String::new();
    aside.read_to_string(&mut text).unwrap();
    (child.wait().unwrap().code(), text)
}

#[test]
fn an_interrupted_submit_says_how_many_jobs_were_sent_and_with_which_line_to_go_on() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let mut child = start(&place, &["--json", "submit", "-"]);
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "{JOB}\n\n{JOB}\nno job\n{JOB}").unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..4 {
        assert!(out.read_line(&mut String::new()).unwrap() > 0);
    }
    // The input is still open, so the program waits for more lines.
    let aside = child.stderr.take().unwrap();
    let (code, aside) = interrupt(child, aside);
    drop(input);
    assert_eq!(code, Some(130), "{aside}");
    says(
        &aside,
        &[
            "Interrupted after line 5: 3 jobs sent, 1 line refused",
            "tail -n +6",
        ],
    );
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let summary: Value = serde_json::from_str(&rest).unwrap();
    assert_eq!(
        summary,
        json!({"interrupted": true, "sent": 3, "refused": 1, "next_line": 6})
    );
    assert_eq!(place.work()["done"], 3);
}

#[test]
fn lines_that_wait_to_be_packed_are_sent_when_it_is_interrupted() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let mut child = start(&place, &["--json", "submit", "--pack", "1000", "-"]);
    let mut input = child.stdin.take().unwrap();
    // Lines are written without a pause, so that almost always some of them wait for their message to fill.
    let writer = std::thread::spawn(move || {
        let mut number = 0;
        while writeln!(input, "{}", JOB.replace("\"7\"", &format!("\"{number}\""))).is_ok() {
            number += 1;
        }
    });
    let mut out = BufReader::new(child.stdout.take().unwrap());
    assert!(out.read_line(&mut String::new()).unwrap() > 0);
    let told = std::thread::spawn(move || {
        let mut rest = String::new();
        out.read_to_string(&mut rest).unwrap();
        rest
    });
    let aside = child.stderr.take().unwrap();
    let (code, aside) = interrupt(child, aside);
    writer.join().unwrap();
    assert_eq!(code, Some(130), "{aside}");
    let told = told.join().unwrap();
    let summary: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(
        summary["next_line"].as_u64(),
        summary["sent"].as_u64().map(|sent| sent + 1),
        "{aside}"
    );
}

#[test]
fn a_backfill_that_is_interrupted_while_it_waits_says_that_nothing_was_done() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let text = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    place.configure(&text.replace("\"LastName\"]", "\"LastName\", \"FirstName\"]"));
    place.run(&["migrate", "up", "--retire"]).success();
    let mut child = start(&place, &["backfill"]);
    let mut aside = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    aside.read_line(&mut line).unwrap();
    says(
        &line,
        &[
            "Waiting",
            "until no worker can acknowledge jobs with an older one",
        ],
    );
    let (code, aside) = interrupt(child, aside);
    assert_eq!(code, Some(130), "{aside}");
    says(&aside, &["Interrupted before anything was done."]);
}

#[test]
fn progress_is_lines_on_standard_error_only_where_it_was_asked_for() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    for (args, shown) in [
        (&["--progress", "--json", "submit", "-"][..], true),
        (&["--json", "submit", "-"], false),
    ] {
        let mut child = start(&place, args);
        let mut input = child.stdin.take().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut aside = BufReader::new(child.stderr.take().unwrap());
        // Sends lines until the program reports progress. If it should report none, sends only a few.
        let (told, hears) = std::sync::mpsc::channel();
        let listener = std::thread::spawn(move || {
            let mut line = String::new();
            while aside.read_line(&mut line).unwrap() > 0 {
                let _ = told.send(std::mem::take(&mut line));
            }
        });
        let mut sent = 0;
        let heard = loop {
            writeln!(input, "{JOB}").unwrap();
            sent += 1;
            assert!(out.read_line(&mut String::new()).unwrap() > 0);
            match hears.try_recv() {
                Ok(line) => break Some(line),
                Err(_) if !shown && sent == 50 => break None,
                Err(_) => {}
            }
        };
        drop(input);
        assert!(child.wait().unwrap().success());
        listener.join().unwrap();
        assert_eq!(heard.is_some(), shown);
        if let Some(line) = heard {
            says(&line, &["submit: ", " lines, "]);
        }
    }
}

#[test]
fn all_but_those_that_another_operator_holds_are_requeued_and_that_is_said() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.put_all("jobs", (0..5).map(|n| format!("no job {n}")));
    place.work();
    place.by_hand(async |store| {
        let queue = evenkeel_model::QueueName::new("jobs-poison").unwrap();
        assert_eq!(
            store
                .queues
                .get(&queue, 2, std::time::Duration::from_mins(5))
                .await
                .unwrap()
                .len(),
            2
        );
    });
    let listed = place.run(&["--json", "poison", "list"]).success();
    assert_eq!(json_lines(&listed).len(), 3);
    says(
        &crate::cli::place::stderr(&listed),
        &["2 more are hidden and were not shown"],
    );
    let requeued = place.run(&["--json", "poison", "requeue", "--all"]).code(1);
    says(
        &crate::cli::place::stderr(&requeued),
        &["2 more are hidden and were not requeued"],
    );
    assert_eq!(json_lines(&requeued).last().unwrap(), &json!({"hidden": 2}));
    says(
        &crate::cli::place::stderr(&place.run(&["poison", "discard", "--all", "--yes"]).code(1)),
        &["2 more are hidden"],
    );
}

#[test]
fn a_long_error_is_shortened_in_the_table_and_whole_where_it_is_asked_for() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let long = format!("{{\"op\":\"put\",\"table\":\"{}\"}}", "T".repeat(60));
    place.put(
        "jobs",
        &evenkeel_model::body::encode(
            &long.replace("\"put\"", &format!("\"{}\"", "o".repeat(300))),
        ),
    );
    place.work();
    let whole = json_lines(&place.run(&["--json", "poison", "list"]).success())[0]["error"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(whole.chars().count() > 160, "{whole}");
    let short: String = whole.chars().take(160).collect();
    let table = crate::cli::place::stdout(&place.run(&["poison", "list"]).success());
    assert!(
        table.contains(&format!("{short}…")) && !table.contains(&whole),
        "{table}"
    );
    says(
        &crate::cli::place::stdout(&place.run(&["-v", "poison", "list"]).success()),
        &[&whole],
    );
}

/// The configuration file is a pipe, so the program waits while it reads the file.
#[cfg(unix)]
#[test]
fn a_worker_that_is_told_to_stop_while_it_reads_its_configuration_ends_in_order() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let file = place.folder().join("default.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&file)
            .status()
            .unwrap()
            .success()
    );
    let mut child = place
        .command(&["run", "--no-http"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Opening the pipe succeeds as soon as the program reads from it.
    let mut pipe = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    assert!(
        Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", child.id())])
            .status()
            .unwrap()
            .success()
    );
    pipe.write_all(text.as_bytes()).unwrap();
    drop(pipe);
    let mut aside = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut aside)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{aside}");
    assert!(aside.contains("finishing jobs in progress"), "{aside}");
}
