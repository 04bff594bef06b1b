//! How do I keep state per key without locks? A million transfers between a thousand accounts,
//! posted by four threads; run it with `cargo run --release --example accounts`.
//!
//! An account is a color, and its balance belongs to that color. A transfer is two events: the
//! first takes the money in the color of the giver, the second brings it in the color of the taker.
//! Money is neither made nor lost.

use mely::runtime::Finish;
use mely::{Color, Colored, Cx, Handler, Poster, Runtime};
use std::sync::Arc;

static WITHDRAW: Handler = Handler::new("withdraw");
static DEPOSIT: Handler = Handler::new("deposit");

const ACCOUNTS: u64 = 1_000;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 250_000;

type Accounts = Arc<Vec<Colored<i64>>>;

/// How much is still to be done: state of a color of its own.
struct Audit {
    transfers_left: u64,
    accounts_left: u64,
    total: i64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().build()?;
    let observer = runtime.poster();
    let total = runtime.run_until(|cx, finish| {
        let accounts: Vec<_> = (0..ACCOUNTS)
            .map(|i| Colored::new(cx, Color::from(i), 100))
            .collect();
        let accounts = Arc::new(accounts);
        let transfers_left = THREADS * TRANSFERS;
        let audit = Audit {
            transfers_left,
            accounts_left: ACCOUNTS,
            total: 0,
        };
        let audit = Colored::new(cx, Color::from(ACCOUNTS), audit);
        for thread in 0..THREADS {
            let (poster, accounts) = (cx.poster(), Arc::clone(&accounts));
            let (audit, finish) = (audit.clone(), finish.clone());
            std::thread::spawn(move || teller(thread, &poster, &accounts, &audit, &finish));
        }
    })?;
    let stats = observer.stats();
    println!(
        "{total} in all, after {} events and {} steals",
        stats.events(),
        stats.steals()
    );
    assert_eq!(total, 100 * ACCOUNTS as i64);
    Ok(())
}

fn teller(
    thread: u64,
    poster: &Poster,
    accounts: &Accounts,
    audit: &Colored<Audit>,
    finish: &Finish<i64>,
) {
    for i in 0..TRANSFERS {
        let giver = &accounts[((i * 7 + thread) % ACCOUNTS) as usize];
        let taker = accounts[((i * 13 + thread * 5) % ACCOUNTS) as usize].clone();
        let (accounts, audit, finish) = (Arc::clone(accounts), audit.clone(), finish.clone());
        let transfer = move |balance: &mut i64, cx: &mut Cx| {
            *balance -= 1;
            let deposit = move |balance: &mut i64, cx: &mut Cx| {
                *balance += 1;
                let its = audit.clone();
                let done = move |audit: &mut Audit, cx: &mut Cx| {
                    audit.transfers_left -= 1;
                    if audit.transfers_left == 0 {
                        count(cx, &accounts, &its, &finish);
                    }
                };
                audit.post(cx, done);
            };
            taker.via(&DEPOSIT).post(cx, deposit);
        };
        if let Err(refused) = giver.via(&WITHDRAW).try_post(poster, transfer) {
            // The run then ends without a total, and `main` says so.
            eprintln!("{refused}");
            return poster.stop();
        }
    }
}

/// Asks every account for its balance, in the account's color, and adds it up in the audit's.
fn count(cx: &mut Cx, accounts: &Accounts, audit: &Colored<Audit>, finish: &Finish<i64>) {
    for account in accounts.iter() {
        let (audit, finish) = (audit.clone(), finish.clone());
        let ask = move |balance: &mut i64, cx: &mut Cx| {
            let balance = *balance;
            let add = move |audit: &mut Audit, _cx: &mut Cx| {
                audit.total += balance;
                audit.accounts_left -= 1;
                if audit.accounts_left == 0 {
                    finish.finish(audit.total);
                }
            };
            audit.post(cx, add);
        };
        account.post(cx, ask);
    }
}
