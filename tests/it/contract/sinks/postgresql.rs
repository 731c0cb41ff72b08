//! PostgreSQL only: its errors, locked rows, statement timeouts, and passwords over TLS.

use std::path::PathBuf;

use super::open_database;
use evenkeel_model::settings::{ConfiguredSecret, PostgresSettings, SqlSettings, SqlTls};
use evenkeel_storage::{DocumentWrite, ErrorClass};
use secrecy::SecretString;

use super::{at_key, columns, ends, fresh, people, write};
use crate::support::postgres::{self, Postgres};

#[tokio::test]
async fn errors_of_postgresql_are_classified() {
    let (server, database) = (postgres::shared(), fresh("answers"));
    let settings = server.database(&database);
    let sink = open_database(settings.clone());
    sink.define(&people(), &columns()).await.unwrap();
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
    let admin = |statement: &str| server.ask(&database, statement);

    // The owner has altered the columns. The error must not contain the value.
    admin("ALTER TABLE people ALTER COLUMN name TYPE integer USING 1");
    // The first write uses the cached column types, and the second uses the types that were read again.
    for code in ["42804", "22P02"] {
        let (class, text) = ends(sink.as_ref(), write("a", "secret name"))
            .await
            .unwrap_err();
        assert!(
            class == ErrorClass::Permanent && text.contains(code) && !text.contains("secret name"),
            "{class:?} {text}"
        );
    }
    admin("ALTER TABLE people ALTER COLUMN name TYPE varchar(3) USING 'Ada'");
    assert_eq!(
        ends(sink.as_ref(), write("a", "Byron"))
            .await
            .unwrap_err()
            .0,
        ErrorClass::Permanent
    );
    let (class, text) = ends(sink.as_ref(), write("a", "Byron")).await.unwrap_err();
    assert!(
        class == ErrorClass::Permanent && text.contains("too long") && text.contains("22001"),
        "{class:?} {text}"
    );
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));

    // Connections that the server has ended are replaced.
    admin(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'evenkeel' AND datname = current_database()",
    );
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));

    admin(&format!(
        "ALTER DATABASE {database} SET default_transaction_read_only = on"
    ));
    let transient = ErrorClass::Transient { retry_after: None };
    let standby = open_database(settings.clone());
    assert_eq!(
        ends(standby.as_ref(), write("a", "Ada"))
            .await
            .unwrap_err()
            .0,
        transient,
        "a standby"
    );
    // The administrative session must not be read-only itself.
    server.ask(
        "postgres",
        &format!("ALTER DATABASE {database} RESET default_transaction_read_only"),
    );
    assert_eq!(
        ends(standby.as_ref(), write("a", "Ada")).await,
        Ok(()),
        "by another connection"
    );
    for lost in [
        "DROP TABLE evenkeel_tombstones",
        "ALTER TABLE people RENAME COLUMN ek_version TO theirs",
        "DROP TABLE people",
    ] {
        admin(lost);
        // If the database reports the missing table, the whole request fails. If the columns were read before, only the
        // document fails.
        let error = match sink.write(&people(), &[write("a", "Ada")]).await {
            Ok(mut written) => written.remove(0).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(
            error.withheld,
            Some(evenkeel_storage::Withheld::TableMissing),
            "{lost}: {error}"
        );
        assert!(
            error.message.contains("`evenkeel migrate up`"),
            "{lost}: {error}"
        );
    }

    admin("CREATE TABLE people (name text)");
    let error = sink.define(&people(), &columns()).await.unwrap_err();
    assert!(
        error.class == ErrorClass::Permanent
            && error.to_string().contains("does not belong to evenkeel"),
        "{error}"
    );

    let SqlSettings::Postgres(mut away) = settings else {
        unreachable!()
    };
    away.port = 1;
    assert_eq!(
        ends(
            open_database(SqlSettings::Postgres(away.clone())).as_ref(),
            write("a", "Ada")
        )
        .await
        .unwrap_err()
        .0,
        ErrorClass::Refused
    );
    (away.port, away.database) = (5_432, "nowhere".to_owned());
    let (class, text) = ends(
        open_database(SqlSettings::Postgres(away)).as_ref(),
        write("a", "Ada"),
    )
    .await
    .unwrap_err();
    assert!(
        class == ErrorClass::Unauthorised && text.contains("nowhere") && text.contains("3D000"),
        "{class:?} {text}"
    );
}

#[tokio::test]
async fn a_row_that_others_hold_holds_up_no_other_of_its_batch() {
    let (server, database) = (postgres::shared(), fresh("held"));
    let sink = open_database(server.database(&database));
    sink.define(&people(), &columns()).await.unwrap();
    let admin = |statement: &str| server.ask(&database, statement);
    let transient = ErrorClass::Transient { retry_after: None };
    let hold = |rows: &str, code: &str| {
        let raises =
            format!("IF NEW.ek_key {rows} THEN RAISE EXCEPTION USING ERRCODE = ''{code}''; END IF");
        let notes = "INSERT INTO waits VALUES (current_setting(''statement_timeout''), current_setting(''lock_timeout''))";
        let does = format!("{raises}; {notes}; RETURN NEW;");
        admin(&format!(
            "CREATE OR REPLACE FUNCTION held() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {does} END'"
        ));
    };
    hold("IS NULL", "55P03");
    admin("CREATE TABLE waits (of_statement text, of_row text)");
    admin("CREATE TRIGGER held BEFORE INSERT ON people FOR EACH ROW EXECUTE FUNCTION held()");
    for (version, code) in (1..).zip(["55P03", "40P01", "40001", "57014", "25P04"]) {
        hold("= ''b''", code);
        let batch = ["a", "b", "c"].map(|key| DocumentWrite {
            version,
            ..write(key, code)
        });
        let ended = sink.write(&people(), &batch).await.unwrap().into_iter();
        let ended: Vec<_> = ended
            .map(|ended| ended.map_err(|error| (error.class, error.code.map(String::from))))
            .collect();
        assert_eq!(
            ended,
            [Ok(()), Err((transient, Some(code.to_owned()))), Ok(())]
        );
        assert_eq!(
            server.ask(&database, "SELECT name FROM people ORDER BY ek_key"),
            [code, code]
        );
    }
    // Each document of a batch has its own error. After a lock timeout (55P03) the remaining documents are still
    // written. After a statement timeout (57014) the remaining documents are not tried, and each gets the error
    // `NotTried`.
    let own = |code: &str| Err((transient, Some(code.to_owned())));
    for (version, code, last) in [(9, "55P03", Ok(())), (10, "57014", own("NotTried"))] {
        hold("< ''c''", code);
        let batch = ["a", "b", "c"].map(|key| DocumentWrite {
            version,
            ..write(key, "Ada")
        });
        let ended = sink.write(&people(), &batch).await.unwrap().into_iter();
        let ended: Vec<_> = ended
            .map(|ended| ended.map_err(|error| (error.class, error.code.map(String::from))))
            .collect();
        assert_eq!(ended, [own(code), own(code), last]);
    }
    let waits = || {
        server.ask(
            &database,
            "SELECT DISTINCT of_statement, of_row FROM waits ORDER BY of_row",
        )
    };
    assert_eq!(waits(), ["25s|50ms"], "of rows alone");
    hold("IS NULL", "55P03");
    let batch = ["a", "b"].map(|key| DocumentWrite {
        version: 11,
        ..write(key, "Ada")
    });
    assert!(
        sink.write(&people(), &batch)
            .await
            .unwrap()
            .iter()
            .all(Result::is_ok)
    );
    assert_eq!(waits(), ["25s|10s", "25s|50ms"]);
}

#[tokio::test]
async fn the_statements_of_a_write_share_its_time() {
    let (server, database) = (postgres::shared(), fresh("shared"));
    let sink = open_database(server.database(&database));
    sink.define(&people(), &columns()).await.unwrap();
    let admin = |statement: &str| server.ask(&database, statement);
    let trigger = |on: &str, each: &str, does: &str| {
        admin(&format!(
            "CREATE FUNCTION on_{on}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {does}; RETURN NEW; END'"
        ));
        admin(&format!(
            "CREATE TRIGGER theirs BEFORE INSERT ON {on} FOR EACH {each} EXECUTE FUNCTION on_{on}()"
        ));
    };
    admin("CREATE TABLE limits (ms integer)");
    trigger("people", "STATEMENT", "PERFORM pg_sleep(4)");
    let notes = "INSERT INTO limits SELECT setting::integer FROM pg_settings WHERE name = ''statement_timeout''";
    trigger("evenkeel_tombstones", "ROW", notes);
    assert_eq!(
        ends(sink.as_ref(), at_key("a", 1_800_000_000_000)).await,
        Ok(())
    );
    let limits = admin("SELECT ms FROM limits");
    assert!(
        limits.len() == 1 && limits[0].parse::<u32>().is_ok_and(|ms| ms <= 24_000),
        "{limits:?} after 4 s of 28"
    );
}

#[tokio::test]
async fn rows_in_another_s_transaction_fail_alone_and_cost_no_connection() {
    let (server, database) = (postgres::shared(), fresh("locked"));
    let sink = open_database(server.database(&database));
    sink.define(&people(), &columns()).await.unwrap();
    let batch = |version: i64| {
        ["a", "b", "c", "d", "e", "f"].map(|key| DocumentWrite {
            version,
            ..write(key, &version.to_string())
        })
    };
    assert!(
        sink.write(&people(), &batch(1))
            .await
            .unwrap()
            .iter()
            .all(Result::is_ok)
    );
    let sessions = || {
        server.ask(&database, "SELECT pid FROM pg_stat_activity WHERE application_name = 'evenkeel' AND datname = current_database()")
    };
    let before = sessions();
    let held = server.hold(
        &database,
        "UPDATE people SET name = 'theirs' WHERE ek_key < 'f'",
    );
    let ended = sink.write(&people(), &batch(2)).await.unwrap().into_iter();
    let ended: Vec<_> = ended
        .map(|ended| ended.map_err(|error| (error.class, error.code.map(String::from))))
        .collect();
    let own = || {
        Err((
            ErrorClass::Transient { retry_after: None },
            Some("55P03".to_owned()),
        ))
    };
    assert_eq!(ended, [own(), own(), own(), own(), own(), Ok(())]);
    drop(held);
    assert_eq!((before.len(), sessions()), (1, before));
    assert_eq!(
        server.ask(&database, "SELECT name FROM people ORDER BY ek_key"),
        ["1", "1", "1", "1", "1", "2"]
    );
}

#[tokio::test]
async fn a_password_goes_over_tls_to_the_server_of_the_certificate_alone() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let port_option = format!("port={port}");
    let mut server = Postgres::start(&[
        "-c",
        "fsync=off",
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        &port_option,
    ]);
    let authority = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    server.secure(
        &authority.cert.pem(),
        &authority.signing_key.serialize_pem(),
    );
    server.ask(
        "postgres",
        "CREATE ROLE app LOGIN PASSWORD 'right-password'",
    );
    server.ask("postgres", "CREATE DATABASE app OWNER app");

    let folder = tempfile::tempdir().unwrap();
    let (ca, password) = (folder.path().join("ca.pem"), folder.path().join("password"));
    std::fs::write(&ca, authority.cert.pem()).unwrap();
    let read: evenkeel_model::settings::ReadSecret = |path| {
        std::fs::read_to_string(path)
            .map(SecretString::from)
            .map_err(|error| error.to_string())
    };
    let file = Some(evenkeel_model::settings::SecretFile {
        path: password.clone(),
        read,
    });
    let secret = ConfiguredSecret {
        file,
        ..ConfiguredSecret::fixed("password_file", SecretString::from("unused"))
    };
    let settings = |ca_file: Option<PathBuf>, tls| {
        let tls = if tls {
            SqlTls::Verify { ca_file }
        } else {
            SqlTls::Off
        };
        SqlSettings::Postgres(Box::new(PostgresSettings {
            host: "localhost".to_owned(),
            port,
            database: "app".to_owned(),
            user: "app".to_owned(),
            password: Some(secret.clone()),
            tls,
        }))
    };
    assert!(!format!("{:?}", settings(None, true)).contains("unused"));
    std::fs::write(&password, "wrong-password").unwrap();
    let sink = open_database(settings(Some(ca.clone()), true));
    let error = sink.define(&people(), &columns()).await.unwrap_err();
    assert!(
        error.class == ErrorClass::Unauthorised && !error.to_string().contains("wrong-password"),
        "{error}"
    );
    std::fs::write(&password, "right-password").unwrap();
    sink.define(&people(), &columns()).await.unwrap();
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));

    // The password is not sent if the certificate is from another authority. It is not sent without TLS either: this server refuses a connection
    // without TLS before it asks for a password.
    for settings in [settings(None, true), settings(None, false)] {
        let (class, text) = ends(open_database(settings).as_ref(), write("a", "Ada"))
            .await
            .unwrap_err();
        assert!(
            class == ErrorClass::Unauthorised && !text.contains("right-password"),
            "{class:?} {text}"
        );
    }
}
