//! Which server, which packages, what to build.

use crate::machine::Part::{Headers, Pgvector, Server};
use crate::machine::{Machine, Part};

const WHOLE: &[Part] = &[Server, Headers, Pgvector("0.8.0")];

fn server(config: &std::path::Path) -> String {
    format!("server {}", config.display())
}

#[test]
fn where_all_is_there_nothing_is_done() {
    let machine = Machine::new();
    let fifteen = machine.postgres(15, WHOLE);
    assert_eq!(machine.decide(), [server(&fifteen)]);
}

#[test]
fn nothing_installed_gets_debians_own_server_its_headers_and_what_compiles() {
    let machine = Machine::new();
    for name in ["make", "cc", "pkg-config", "python3"] {
        machine.without(name);
    }
    for path in ["usr/include/stdio.h", "usr/lib/llvm-14", "etc/ssl/certs/ca-certificates.crt", "scratch"] {
        machine.remove(path);
    }
    for package in
        ["gcc", "libc6-dev", "make", "pkg-config", "ca-certificates", "libclang-dev", "python3-pip"]
    {
        machine.apt_knows(&format!("{package} 1"));
    }
    let plan = machine.decide();
    assert_eq!(
        plan[0],
        "install gcc libc6-dev make pkg-config ca-certificates libclang-dev postgresql-15 postgresql-server-dev-15 python3-pip"
    );
    assert!(plan.contains(&"pgvector source".into()), "{plan:?}");
    assert!(plan.contains(&"fetch models".into()) && plan.contains(&"fetch manual".into()), "{plan:?}");
}

#[test]
fn empty_lists_of_apt_are_filled_before_anything_is_chosen() {
    let mut machine = Machine::new();
    machine.apt(&[]);
    assert_eq!(machine.decide(), ["update"]);
    machine.set("KB_UPDATED", "1");
    assert!(machine.stops().contains("apt knows none"), "{}", machine.stops());
}

#[test]
fn a_server_without_headers_gets_its_own_headers() {
    let machine = Machine::new();
    let fifteen = machine.postgres(15, &[Server, Pgvector("0.8.0")]);
    assert_eq!(machine.decide(), ["install postgresql-server-dev-15".into(), server(&fifteen)]);
}

#[test]
fn a_server_whose_headers_apt_does_not_know_is_passed_over_for_debians_own() {
    let mut machine = Machine::new();
    machine.postgres(15, &[Server]);
    machine.apt(&["postgresql default 17", "postgresql-17 17.1", "postgresql-server-dev-17 17.1"]);
    // Newer lists might have known them.
    assert_eq!(machine.decide(), ["update"]);
    machine.set("KB_UPDATED", "1");
    let plan = machine.decide();
    assert_eq!(plan[0], "install postgresql-17 postgresql-server-dev-17");
    assert!(plan[1].ends_with("/usr/lib/postgresql/17/bin/pg_config"), "{plan:?}");
}

#[test]
fn headers_without_a_server_get_the_server() {
    let machine = Machine::new();
    let fifteen = machine.postgres(15, &[Headers, Pgvector("0.8.0")]);
    assert_eq!(machine.decide(), ["install postgresql-15".into(), server(&fifteen)]);
}

#[test]
fn a_client_alone_is_neither_server_nor_headers() {
    let machine = Machine::new();
    machine.postgres(15, &[]);
    assert_eq!(machine.decide()[0], "install postgresql-15 postgresql-server-dev-15");
}

#[test]
fn pgvector_is_built_where_no_package_has_it_and_installed_where_one_does() {
    let machine = Machine::new();
    let fifteen = machine.postgres(15, &[Server, Headers]);
    assert_eq!(machine.decide(), [server(&fifteen), "pgvector source".into()]);
    machine.apt_knows("postgresql-15-pgvector 0.7.4-1");
    assert_eq!(machine.decide(), [server(&fifteen), "pgvector source".into()], "a package that is too old");
    machine.apt(&["postgresql-15-pgvector 0.8.3-1"]);
    assert_eq!(machine.decide(), [server(&fifteen), "pgvector source".into()], "one that corrupts indexes");
    machine.apt(&["postgresql-15-pgvector 0.8.4-2.pgdg12+1"]);
    assert_eq!(machine.decide(), [server(&fifteen), "pgvector package postgresql-15-pgvector".into()]);
}

#[test]
fn a_pgvector_older_than_0_8_is_none() {
    for (version, taken) in [
        ("0.7.4", false),
        ("0.4.4", false),
        ("0.8.0", true),
        ("0.8", true),
        ("0.10.1", true),
        ("1.0.0", true),
    ] {
        let machine = Machine::new();
        let fifteen = machine.postgres(15, &[Server, Headers, Pgvector(version)]);
        let steps =
            if taken { vec![server(&fifteen)] } else { vec![server(&fifteen), "pgvector source".into()] };
        assert_eq!(machine.decide(), steps, "pgvector {version}");
    }
}

#[test]
fn an_older_pgvector_is_replaced_where_no_package_brought_it_and_somebody_can() {
    for (version, is_replaced) in [("0.8.0", true), ("0.8.5", true), ("0.8.6", false), ("0.9.0", false)] {
        let machine = Machine::new();
        let fifteen = machine.postgres(15, &[Server, Headers, Pgvector(version)]);
        assert_eq!(machine.decide(), [server(&fifteen)], "{version} of a package");
        machine.program("dpkg-query", "[ \"$1\" != -S ]");
        let mut plan = vec![server(&fifteen)];
        plan.extend(is_replaced.then(|| "pgvector source".to_string()));
        assert_eq!(machine.decide(), plan, "{version} from source");
        // Not over it: its files would be those of two.
        machine.apt(&["postgresql-15-pgvector 0.8.6-1"]);
        assert_eq!(machine.decide(), plan, "{version} from source, and a package");
    }
}

#[test]
fn pgvector_from_the_user_is_built_whatever_is_there() {
    for (there, wanted) in [("0.8.6", "0.8.0"), ("0.8.0", "0.8.6"), ("0.8.0", "0.8.0")] {
        let mut machine = Machine::new();
        let fifteen = machine.postgres(15, &[Server, Headers, Pgvector(there)]);
        machine.set("PGVECTOR", wanted);
        let mut plan = vec![server(&fifteen)];
        plan.extend((there != wanted).then(|| "pgvector source".to_string()));
        assert_eq!(machine.decide(), plan, "{there} {wanted}");
    }
    let mut machine = Machine::new();
    machine.postgres(15, WHOLE);
    machine.set("PGVECTOR", "0.8.2");
    assert_eq!(machine.decide(), ["stop PGVECTOR=0.8.2: setup.sh builds 0.8.6 or 0.8.0, or unset PGVECTOR"]);
}

#[test]
fn a_pgvector_that_is_half_there_is_none() {
    for missing in ["lib/vector.so", "share/extension/vector--0.8.0.sql", "share/extension/vector.control"] {
        let machine = Machine::new();
        let fifteen = machine.postgres(15, WHOLE);
        machine.remove(&format!("usr/lib/postgresql/15/{missing}"));
        assert_eq!(machine.decide(), [server(&fifteen), "pgvector source".into()], "without {missing}");
    }
}

#[test]
fn of_two_majors_the_newest_that_needs_least_is_taken() {
    // (what 15 has, what 17 has, which is taken)
    let cases: &[(&[Part], &[Part], u32)] = &[
        (WHOLE, WHOLE, 17),
        (WHOLE, &[Server, Headers], 15),
        (&[Server, Headers], WHOLE, 17),
        (&[Server, Headers], &[Server, Headers], 17),
        (&[Server, Headers], &[Server, Pgvector("0.8.0")], 15),
        (&[Server, Headers, Pgvector("0.7.0")], &[Server, Headers], 17),
        (&[Server, Headers, Pgvector("0.8.0")], &[Server, Headers, Pgvector("0.7.0")], 15),
        (&[Server], &[Server], 17),
        (&[Server], &[Headers], 15),
        (&[Headers], &[], 15),
    ];
    for (fifteen, seventeen, taken) in cases {
        let machine = Machine::new();
        machine.apt(&[
            "postgresql default 15",
            "postgresql-15 1",
            "postgresql-server-dev-15 1",
            "postgresql-17 1",
            "postgresql-server-dev-17 1",
        ]);
        machine.postgres(15, fifteen);
        machine.postgres(17, seventeen);
        let plan = machine.decide();
        let end = format!("/usr/lib/postgresql/{taken}/bin/pg_config");
        assert!(
            plan.iter().any(|step| step.starts_with("server ") && step.ends_with(&end)),
            "{taken}: {plan:?}"
        );
        for step in plan.iter().filter(|step| step.starts_with("install ")) {
            assert!(step[8..].split(' ').all(|name| name.ends_with(&taken.to_string())), "{taken}: {plan:?}");
        }
    }
}

#[test]
fn two_majors_of_which_apt_has_one() {
    let machine = Machine::new();
    machine.apt(&["postgresql default 17", "postgresql-17 1", "postgresql-server-dev-17 1"]);
    machine.postgres(15, &[Server]);
    let seventeen = machine.postgres(17, &[Server]);
    let plan = machine.decide();
    assert_eq!(plan[..2], ["install postgresql-server-dev-17".into(), server(&seventeen)]);
}

#[test]
fn a_version_that_kb_is_not_for_is_passed_over() {
    let machine = Machine::new();
    machine.postgres(14, WHOLE);
    machine.postgres(19, WHOLE);
    assert_eq!(machine.decide()[0], "install postgresql-15 postgresql-server-dev-15");
}

#[test]
fn pg_config_from_the_user_decides_over_a_better_server() {
    let mut machine = Machine::new();
    machine.postgres(17, WHOLE);
    let own = machine.own_postgres("opt/pg", 16, &[Server, Headers]);
    machine.set("PG_CONFIG", own.display().to_string());
    assert_eq!(machine.decide(), [server(&own), "pgvector source".into()]);
}

#[test]
fn debians_pg_config_from_the_user_gets_what_that_server_lacks() {
    let mut machine = Machine::new();
    machine.postgres(17, WHOLE);
    let fifteen = machine.postgres(15, &[Server, Pgvector("0.8.0")]);
    machine.set("PG_CONFIG", fifteen.display().to_string());
    assert_eq!(machine.decide(), ["install postgresql-server-dev-15".into(), server(&fifteen)]);
}

#[test]
fn debians_server_by_another_pg_config_is_debians() {
    let mut machine = Machine::new();
    let fifteen = machine.postgres(15, &[Server]);
    machine.apt_knows("postgresql-15-pgvector 0.8.6-1");
    machine.program("pg_config", &format!("exec '{}' \"$@\"", fifteen.display()));
    machine.set("PG_CONFIG", "pg_config");
    let plan = machine.decide();
    assert_eq!(plan[0], "install postgresql-server-dev-15");
    assert_eq!(plan[1], server(&machine.root().join("bin/pg_config")));
    assert_eq!(plan[2], "pgvector package postgresql-15-pgvector");
}

#[test]
fn a_user_with_sudo_installs_as_root_does() {
    let machine = Machine::new();
    machine.user(1000);
    machine.sudo();
    machine.postgres(15, &[Server, Pgvector("0.8.0")]);
    assert_eq!(machine.decide()[0], "install postgresql-server-dev-15");
}

#[test]
fn a_user_without_sudo_takes_what_is_whole() {
    let machine = Machine::new();
    machine.user(1000);
    let fifteen = machine.postgres(15, WHOLE);
    machine.postgres(17, &[Server]);
    assert_eq!(machine.decide(), [server(&fifteen)]);
}

#[test]
fn a_dpkg_that_was_interrupted_is_repaired_first_and_only_where_it_matters() {
    let machine = Machine::new();
    machine.file("dpkg", "gcc installed\npostgresql-15 half-configured\n");
    let fifteen = machine.postgres(15, WHOLE);
    assert_eq!(machine.decide(), ["repair".into(), server(&fifteen)]);
    machine.file("dpkg", "some-game half-configured\n");
    assert_eq!(machine.decide(), [server(&fifteen)], "nothing of ours");
    machine.without("cc");
    machine.apt_knows("gcc 12");
    assert_eq!(machine.decide(), ["repair".into(), "install gcc".into(), server(&fifteen)]);
}

#[test]
fn a_checkout_with_spaces_and_a_foreign_language_decide_the_same() {
    let mut machine = Machine::in_checkout("my own/Übung (1) & \"more\"");
    let fifteen = machine.postgres(15, &[Server, Pgvector("0.8.0")]);
    machine.set("LANG", "de_DE.UTF-8");
    machine.set("LC_ALL", "nonsense");
    machine.set("LANGUAGE", "de:fr");
    // Only in English, as apt itself does.
    machine.program(
        "apt-cache",
        "if [ \"$LC_ALL\" != C.UTF-8 ] || [ -n \"${LANGUAGE:-}\" ]; then echo \"  Installationskandidat: 1\"; exit; fi
         case $1 in policy) echo \"  Candidate: 1\" ;; depends) echo \"  Depends: postgresql-15\" ;; esac",
    );
    assert_eq!(machine.decide(), ["install postgresql-server-dev-15".into(), server(&fifteen)]);
}

#[test]
fn what_lint_checks_with_is_installed_by_its_own_part_only() {
    let machine = Machine::new();
    let fifteen = machine.postgres(15, WHOLE);
    machine.apt_knows("shellcheck 0.9.0");
    machine.apt_knows("git 2.39.5");
    let plan = || String::from_utf8(machine.run("decide.sh", &["lint"]).stdout).unwrap();
    assert_eq!(machine.decide(), [server(&fifteen)]);
    assert_eq!(plan(), format!("install shellcheck git\n{}\nfetch cargo-deny\n", server(&fifteen)));
    for program in ["shellcheck", "git", "cargo-deny"] {
        machine.program(program, "exit 0");
    }
    assert_eq!(plan(), format!("{}\n", server(&fifteen)));
}

#[test]
fn a_pinned_rust_that_rustup_cannot_get_gives_way_to_the_users_default() {
    let machine = Machine::new();
    let fifteen = machine.postgres(15, WHOLE);
    machine.program("rustup", "[ \"$*\" = default ] && echo 'stable-x86_64 (default)'");
    let rustc = |version: &str| {
        let says = format!("echo 'rustc {version} (abc 2026-01-01)'");
        machine.program("rustc", &format!("[ \"$RUSTUP_TOOLCHAIN\" = stable-x86_64 ] && {says}"));
    };
    rustc("1.96.0");
    assert_eq!(machine.decide(), [server(&fifteen)]);
    rustc("1.94.0");
    assert!(machine.stops().contains("Rust 1.94.0 is too old"), "{}", machine.stops());
}
