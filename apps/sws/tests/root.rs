//! No path leaves the root.

use crate::client::Client;
use crate::setup::Setup;
use crate::site::{Directory, Random, noise};
use std::os::unix::fs::symlink;

const SECRET: &[u8] = b"the secret outside of the root\n";

/// A root with a secret beside it, one inside whose name hides it, and links that lead out.
fn tree() -> Directory {
    let directory = Directory::new();
    directory.write("secret.txt", SECRET);
    directory.write("www/index.html", b"index");
    directory.write("www/sub/index.html", b"sub");
    directory.write("www/.hidden", SECRET);
    directory.write("www/.git/config", SECRET);
    let www = directory.path().join("www");
    symlink("../secret.txt", www.join("link.txt")).unwrap();
    symlink("..", www.join("up")).unwrap();
    symlink(
        directory.path().join("secret.txt"),
        www.join("sub/link.txt"),
    )
    .unwrap();
    // Inside, a link is as good as a file; to a directory above itself it must not be followed.
    symlink(".hidden", www.join("shown.txt")).unwrap();
    symlink(".git", www.join("repository")).unwrap();
    symlink("index.html", www.join("inside.html")).unwrap();
    symlink(".", www.join("loop")).unwrap();
    directory
}

#[test]
fn no_spelling_reaches_the_secret() {
    let tree = tree();
    let server = Setup::new("epoll").root(&tree.path().join("www")).start();
    let absolute = tree.path().join("secret.txt").display().to_string();
    let mut paths: Vec<String> = [
        "/link.txt",
        "/up/secret.txt",
        "/sub/link.txt",
        "/.hidden",
        "/%2ehidden",
        "/shown.txt",
        "/repository/config",
        "/.git/config",
        "/loop/.hidden",
        "/../secret.txt",
        "/sub/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..%2fsecret.txt",
        "/..%5csecret.txt",
        "/..\\secret.txt",
        "/%252e%252e%252fsecret.txt",
        "/%c0%ae%c0%ae/secret.txt",
        "/%c0%af../secret.txt",
        "/%uff0e%uff0e/secret.txt",
        "/....//secret.txt",
        "/..;/secret.txt",
        "/sub/..%00/../secret.txt",
        "/../secret.txt%00.html",
        "//../secret.txt",
        "///secret.txt",
        "/./.././secret.txt",
        "/?/../secret.txt",
        "/#/../../secret.txt",
        "../secret.txt",
        "secret.txt",
        "http://h/../secret.txt",
        "http:///../secret.txt",
        "http://../secret.txt",
        "file:///secret.txt",
        "/file:///secret.txt",
        "*",
    ]
    .map(str::to_owned)
    .into();
    paths.extend([
        absolute.clone(),
        format!("/{absolute}"),
        format!("file://{absolute}"),
        format!("/../../../../../../../../../..{absolute}"),
    ]);
    let pieces = [
        "/",
        "/",
        "/",
        "..",
        "..",
        ".",
        "%2e",
        "%2E%2e",
        "%2f",
        "%5c",
        "\\",
        "secret.txt",
        "up",
        "sub",
        "link.txt",
        "%00",
        "%",
        "%25",
        "%c0%ae",
        ";",
        "?",
        "loop",
        "www",
        "//",
        "http://h",
    ];
    let mut random = Random(14);
    for _ in 0..3000 {
        let length = 1 + random.below(9);
        let piece = |_| pieces[random.below(pieces.len() as u64) as usize];
        paths.push(format!("/{}", (0..length).map(piece).collect::<String>()));
    }
    let mut client = Client::connect(server.addr());
    for path in &paths {
        let answer = client.get(path);
        assert!(
            !answer.bytes.windows(SECRET.len()).any(|w| w == SECRET),
            "{path}"
        );
        match answer.status() {
            // Spellings of what may be seen.
            200 => assert!(
                [b"index".as_slice(), b"sub"].contains(&answer.body()),
                "{path}"
            ),
            301 | 400 | 403 | 404 => {}
            other => panic!("{path}: {other}"),
        }
        if answer.closes() {
            client = Client::connect(server.addr());
        }
    }
    assert_eq!(client.get("/inside.html").body(), b"index");
    assert_eq!(client.get("/secret.txt").status(), 404);
}

/// Whichever answers it is in.
#[test]
fn a_file_is_in_memory_once() {
    const MIB: usize = 64;
    let directory = Directory::new();
    directory.write("index.html", &noise(1, MIB << 20));
    let server = Setup::new("epoll").root(directory.path()).start();
    let mut client = Client::connect(server.addr());
    for path in ["/", "/index.html"] {
        assert_eq!(client.get(path).body().len(), MIB << 20);
    }
    let rss_mib = server.rss_kib() as usize / 1024;
    assert!((MIB..MIB + MIB / 2).contains(&rss_mib), "{rss_mib} MiB");
}

#[test]
fn a_file_beyond_the_limit_is_named_with_the_option() {
    let directory = Directory::new();
    directory.write("small.txt", b"small");
    directory.write("z/large.bin", &noise(1, 3 << 20));
    let setup = || Setup::new("epoll").root(directory.path());
    let exit = setup().args(&["--max-site-mib", "2"]).run();
    assert_eq!(exit.code, Some(1), "{exit:?}");
    for part in ["z/large.bin", "3.0 MiB", "2.0 MiB", "--max-site-mib 4"] {
        assert!(exit.err.contains(part), "{part}: {exit:?}");
    }
    let exit = setup().args(&["--max-files", "2"]).run();
    assert_eq!(exit.code, Some(1), "{exit:?}");
    assert!(exit.err.contains("give --max-files"), "{exit:?}");
    let server = setup().args(&["--max-site-mib", "4"]).start();
    let length = Client::connect(server.addr())
        .get("/z/large.bin")
        .body()
        .len();
    assert_eq!(length, 3 << 20);
}
