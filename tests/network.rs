//! Networks by name: none, one of its own, and the host's, each asked for in the intent and nowhere else. A program of this
//! test talks to itself and to a server of the host, and the run record says what it asked for.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use xt_core::field::Manifest as _;
use xt_core::manifest::custody::{Custody, State};
use xt_core::manifest::intent::{Floor, Intent, Network, Profile};
use xt_core::manifest::plan::Plan;
use xt_core::manifest::run::{Run, Status};
use xt_harness::{Folder, Outcome};
use xt_store::Store;

/// Tries each way and prints how it went: `OK` and what came back, or the number of the error.
const SOURCE: &str = r#"
    #include <arpa/inet.h>
    #include <errno.h>
    #include <netinet/in.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/un.h>
    #include <unistd.h>

    static void say(const char *what, int failed, const char *back) {
        if (failed) printf("%s: error %d\n", what, errno);
        else printf("%s: OK %s\n", what, back);
        fflush(stdout);
    }
    static int talks(int listener, int client, struct sockaddr *at, socklen_t size, char *back) {
        if (listener < 0 || client < 0 || bind(listener, at, size) < 0 || listen(listener, 1) < 0) return -1;
        if (getsockname(listener, at, &size) < 0 || connect(client, at, size) < 0) return -1;
        int server = accept(listener, NULL, NULL);
        if (server < 0 || send(client, "hello", 6, 0) != 6) return -1;
        return recv(server, back, 6, 0) == 6 ? 0 : -1;
    }
    int main(int count, char **words) {
        char back[64] = "";
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int failed = talks(socket(AF_INET, SOCK_STREAM, 0), socket(AF_INET, SOCK_STREAM, 0), (void *)&four, sizeof four, back);
        say("own server", failed, back);
        struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
        failed = talks(socket(AF_INET6, SOCK_STREAM, 0), socket(AF_INET6, SOCK_STREAM, 0), (void *)&six, sizeof six, back);
        say("own server, version 6", failed, back);
        struct sockaddr_un hidden = {.sun_family = AF_UNIX, .sun_path = "\0own"};
        failed = talks(socket(AF_UNIX, SOCK_STREAM, 0), socket(AF_UNIX, SOCK_STREAM, 0), (void *)&hidden, sizeof(sa_family_t) + 4, back);
        say("own abstract socket", failed, back);
        struct sockaddr_in host = four;
        host.sin_port = htons(atoi(words[1]));
        int client = socket(AF_INET, SOCK_STREAM, 0);
        failed = client < 0 || connect(client, (void *)&host, sizeof host) < 0;
        if (!failed) { memset(back, 0, sizeof back); failed = read(client, back, sizeof back - 1) <= 0; }
        say("server of the host", failed, back);
        int datagrams = socket(AF_INET, SOCK_DGRAM, 0);
        failed = datagrams < 0 || sendto(datagrams, "x", 1, 0, (void *)&four, sizeof four) != 1;
        say("datagram", failed, "");
        struct iovec part = {"x", 1};
        struct msghdr message = {.msg_name = &four, .msg_namelen = sizeof four, .msg_iov = &part, .msg_iovlen = 1};
        failed = datagrams < 0 || sendmsg(datagrams, &message, 0) != 1;
        say("message", failed, "");
        say("netlink", socket(AF_NETLINK, SOCK_RAW, 0) < 0, "");
        say("vsock", socket(40, SOCK_STREAM, 0) < 0, "");
        say("raw", socket(AF_INET, SOCK_RAW, 1) < 0, "");
        FILE *out = fopen("out", "w");
        return !out || fclose(out);
    }
"#;

const CANDIDATE: &str = r#"{"schema":"xt.candidate/1","name":"talker",
    "trainer":{"kind":"command","executable":"PROGRAM","arguments":["PORT"],"environment":{},"roots":[],"files":{},
        "threads":1},
    "parameters":{},"data":null,"steps":null,"regime":"exact"}"#;

/// A place with the program, and a server on the host's loopback.
struct Talk {
    folder: Folder,
    server: TcpListener,
}

impl Talk {
    fn new() -> Self {
        let folder = Folder::new();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let source = folder.write("talker.c", SOURCE);
        let done = Command::new("cc").arg("-o").arg(folder.at("talker")).arg(source).status().unwrap();
        assert!(done.success());
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        server.set_nonblocking(true).unwrap();
        Self { folder, server }
    }

    fn compile(&self, network: Network, profile: Profile) -> Outcome {
        let mut intent = Intent::default_for(1);
        intent.network = network;
        intent.isolation.profile = profile;
        self.folder.write("intent.json", intent.encode().canonical());
        let program = self.folder.at("talker").display().to_string();
        let port = self.server.local_addr().unwrap().port().to_string();
        let text = CANDIDATE.replace("PROGRAM", &program).replace("PORT", &port);
        self.folder.xt("compile").args(["--intent", "intent.json"]).input(text).run()
    }

    /// Runs it, answers whoever connects to the host's server, and gives the record, what was printed, and how many
    /// connected. `user` is who starts the run, when not whoever starts this test.
    fn run(
        &self,
        network: Network,
        profile: Profile,
        user: Option<u32>,
    ) -> (Run, Custody, BTreeMap<String, String>, usize) {
        let plan = Plan::decode(&self.compile(network, profile).expect(0).document()).unwrap();
        assert_eq!(plan.intent.network, network);
        self.folder.write("plan.json", plan.encode().canonical());
        let mut command = self.folder.sh("exec xt-run plan.json");
        if let Some(user) = user {
            let script = format!("exec setpriv --reuid {user} --regid {user} --clear-groups xt-run plan.json");
            let owner = Command::new("chown").args(["-R", &user.to_string()]).arg(self.folder.path()).status();
            assert!(owner.unwrap().success());
            command = self.folder.sh(&script);
        }
        let mut child = command.start();
        drop(child.stdin.take());
        let mut hits = 0;
        while child.try_wait().unwrap().is_none() {
            if let Ok((mut guest, _)) = self.server.accept() {
                hits += 1;
                guest.write_all(b"from the host").unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let (mut stdout, mut stderr) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut stdout).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let outcome = Outcome { code: None, stdout, stderr };
        let run = Run::decode(&outcome.document()).unwrap();
        assert_eq!(run.status, Status::Succeeded, "{network}, {profile}: {}", run.cause);
        let store = Store::open(&self.folder.at(".xt")).unwrap();
        let said = String::from_utf8(store.get(run.logs.stdout.digest).unwrap()).unwrap();
        let line = |line: &str| line.split_once(": ").map(|(what, how)| (what.into(), how.trim_end().into()));
        let custody = store.manifest(run.custody.unwrap()).unwrap();
        (run, custody, said.lines().filter_map(line).collect(), hits)
    }
}

fn state(custody: &Custody, id: &str) -> Option<State> {
    custody.controls.iter().find(|control| control.id == id).map(|control| control.state)
}

/// The users who can start a run here.
fn users() -> Vec<Option<u32>> {
    if nix::unistd::geteuid().is_root() {
        return vec![None, Some(65_534)];
    }
    println!("not tested: starting as another user than this one (this test does not run as root)");
    vec![None]
}

const OWN: [&str; 3] = ["own server", "own server, version 6", "own abstract socket"];

#[test]
fn without_a_network_every_socket_is_refused() {
    for user in users() {
        let talk = Talk::new();
        let (run, custody, said, hits) = talk.run(Network::None, Profile::Full, user);
        assert!(said.len() == 9 && said.values().all(|how| how == "error 1"), "{said:?}");
        assert_eq!((hits, custody.network), (0, Network::None));
        assert_eq!((state(&custody, "network.none"), state(&custody, "network.own")), (Some(State::Enforced), None));
        assert_eq!(run.observed.opened, None);
        let denied = run.observed.denied.unwrap();
        assert!(denied.counts["socket"] >= 9 && denied.first[0].starts_with("socket(2,"), "{denied:?}");
    }
}

#[test]
fn loopback_reaches_itself_and_nothing_of_the_host_and_the_record_says_what_was_asked_for() {
    for user in users() {
        let talk = Talk::new();
        let (run, custody, said, hits) = talk.run(Network::Loopback, Profile::Full, user);
        assert!(OWN.iter().all(|way| said[*way] == "OK hello"), "{said:?}");
        assert_eq!((said["server of the host"].as_str(), hits), ("error 111", 0), "refused: nobody listens in there");
        assert!(["netlink", "vsock", "raw"].iter().all(|way| said[*way].starts_with("error 1")), "{said:?}");
        assert_eq!(custody.network, Network::Loopback);
        assert_eq!(state(&custody, "network.none"), Some(State::NotRequested));
        assert_eq!(state(&custody, "network.own"), Some(State::Enforced), "{custody:?}");
        let opened = run.observed.opened.clone().unwrap();
        let port = talk.server.local_addr().unwrap().port();
        for asked in [
            "bind 127.0.0.1:0",
            "bind [::1]:0",
            "bind unix:@own",
            "connect unix:@own",
            &format!("connect 127.0.0.1:{port}"),
        ] {
            assert!(opened.first.iter().any(|call| call == asked), "{asked}: {opened:?}");
        }
        assert!(opened.first.iter().any(|call| call.starts_with("sendmsg 127.0.0.1:")), "{opened:?}");
        let counts = ["bind", "connect", "sendto", "sendmsg"].map(|name| opened.counts[name]);
        assert_eq!(counts, [3, 4, 1, 1], "a message without an address is none: {opened:?}");
        assert!(run.observed.denied.unwrap().counts["socket"] >= 2);
    }
}

#[test]
fn the_network_of_the_host_reaches_a_server_of_the_host() {
    for (user, profile) in users().into_iter().flat_map(|user| [(user, Profile::Full), (user, Profile::InContainer)]) {
        let talk = Talk::new();
        let (run, custody, said, hits) = talk.run(Network::Host, profile, user);
        assert_eq!((said["server of the host"].as_str(), hits), ("OK from the host", 1), "{profile}: {said:?}");
        assert_eq!(said["own server"], "OK hello", "{profile}");
        // Sockets by path lead out where there is no own file system, so that family is not granted there.
        let expected = if profile == Profile::Full { "OK hello" } else { "error 1" };
        assert_eq!(said["own abstract socket"], expected, "{profile}");
        assert_eq!((custody.network, state(&custody, "network.none")), (Network::Host, Some(State::NotRequested)));
        assert_eq!(state(&custody, "network.own"), None);
        let others = ["credentials.none", "privileges.none", "process.isolated", "calls.filtered"];
        assert!(others.iter().all(|id| state(&custody, id) == Some(State::Enforced)), "{profile}: {custody:?}");
        let port = talk.server.local_addr().unwrap().port();
        let opened = run.observed.opened.unwrap();
        assert!(opened.first.contains(&format!("connect 127.0.0.1:{port}")), "{opened:?}");
    }
}

#[test]
fn a_network_of_its_own_takes_the_full_profile_and_anything_else_is_refused() {
    let talk = Talk::new();
    for profile in [Profile::InContainer, Profile::None] {
        let refused = talk.compile(Network::Loopback, profile).expect(10);
        assert!(refused.stderr.contains("/network") && refused.stderr.contains("profile full"), "{}", refused.stderr);
    }
    assert_eq!(Intent::default_for(1).network, Network::None, "nothing else is ever assumed");
    let other = Intent::default_for(1).encode().canonical().replace("\"network\":\"none\"", "\"network\":\"open\"");
    talk.folder.write("intent.json", other);
    let refused = talk.folder.xt("compile").args(["--intent", "intent.json"]).input(CANDIDATE).run().expect(10);
    assert!(refused.stderr.contains("expected one of none, loopback, host"), "{}", refused.stderr);
}

#[test]
fn a_run_with_a_network_freezes_and_verifies_and_the_bundle_names_the_network() {
    let talk = Talk::new();
    let (run, ..) = talk.run(Network::Loopback, Profile::Full, None);
    talk.folder.xt("freeze").args(["-o", "talk.tar.zst"]).input(run.encode().canonical()).run().expect(0);
    talk.folder.xt("freeze").args(["verify", "talk.tar.zst"]).run().expect(0);
    assert_eq!(run.intent.network, Network::Loopback);
    assert!(run.intent.isolation.floor.values().all(|floor| *floor == Floor::Preferred));
}
