//! The plan of each machine that plans.txt describes.

use crate::machine::{Machine, WHOLE};

#[test]
fn each_machine_gets_the_plan_that_plans_txt_gives_it() {
    let cases = include_str!("plans.txt").split("\n# ").skip(1);
    let failed: Vec<String> = cases.filter_map(|case| check(case).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

fn check(case: &str) -> Result<(), String> {
    let mut machine = Machine::new();
    let (what, lines) = case.split_once('\n').unwrap();
    let mut parts = vec![];
    if !lines.contains(" => ") {
        return Err(format!("{what}: no line says what is expected"));
    }
    for line in lines.lines() {
        let (command, plan) = line.split_once(" => ").map_or((line, None), |(to, plan)| (to, Some(plan)));
        match command.strip_prefix("part ") {
            Some(part) => parts = vec![part],
            None => change(&mut machine, command),
        }
        if let Some(expected) = plan {
            let plan = machine.decide(&parts);
            if !is_like(&plan, expected) {
                return Err(format!("{what}\n  {expected}\n  but: {plan}"));
            }
        }
    }
    Ok(())
}

fn change(machine: &mut Machine, line: &str) {
    let line = line.replace("{root}", &machine.at("")).replace("\\n", "\n").replace("whole", WHOLE);
    let (command, rest) = line.split_once(' ').unwrap_or((&line, ""));
    let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
    match command {
        "checkout" => *machine = Machine::in_checkout(rest),
        "pg" => drop(machine.postgres(first.parse().unwrap(), more)),
        "own" => {
            let config = machine.postgres_in("opt/pg", "opt/pg/include", first.parse().unwrap(), more);
            machine.set("PG_CONFIG", &config);
        }
        "set" => machine.set(first, more),
        "user" => machine.user(first),
        "rust" => machine.rust(first),
        "apt" => machine.apt(rest),
        "apt+" => machine.apt_knows(rest),
        "program" => machine.program(first, more),
        "file" => machine.file(first, more),
        "without" => rest.split(' ').for_each(|name| machine.without(name)),
        "remove" => rest.split(' ').for_each(|path| machine.remove(path)),
        _ => panic!("{command} is no command: {line}"),
    }
}

/// Whether the text is this pattern, in which … stands for anything.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('…') {
        None => text == pattern,
        Some((first, rest)) => text.strip_prefix(first).is_some_and(|text| {
            (0..=text.len()).any(|at| text.is_char_boundary(at) && is_like(&text[at..], rest))
        }),
    }
}
