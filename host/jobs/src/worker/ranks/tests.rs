use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use proptest::prelude::*;

use super::remote_leader::connect_link;
use super::*;
use crate::limits::RANK_HANDSHAKES_MAX;
use crate::rank_network::{RankCredentials, RankNetwork};

/// Rank 0 while it waits for ranks.
struct WaitingLeader {
    credentials: RankCredentials,
    admitted: JoinHandle<Result<Vec<(u32, RankLink)>, String>>,
    refusals: mpsc::Receiver<String>,
    /// Sent when it is to stop waiting.
    stop: mpsc::Sender<()>,
}

impl WaitingLeader {
    fn start(ranks: Range<u32>) -> WaitingLeader {
        let listener = RankListener::bind(&RankNetwork::default()).unwrap();
        let identity = RankIdentity { job: "j".to_owned(), attempt: 2, epoch: 3, rank: 0 };
        let meeting_point = listener.meeting_point();
        let credentials = RankCredentials { identity: identity.clone(), device: "cpu".to_owned(), meeting_point };
        let ((report, refusals), (stop, stopped)) = (mpsc::channel(), mpsc::channel());
        let admit = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let is_over = || stopped.try_recv().is_ok();
            let report = |line| report.send(line).unwrap();
            let admitted = runtime.block_on(listener.admit(ranks, &identity, is_over, report))?;
            Ok(admitted.into_iter().map(|(rank, admitted)| (rank, admitted.link)).collect())
        };
        WaitingLeader { credentials, admitted: thread::spawn(admit), refusals, stop }
    }

    fn credentials(&self, rank: u32) -> RankCredentials {
        let identity = RankIdentity { rank, ..self.credentials.identity.clone() };
        RankCredentials { identity, ..self.credentials.clone() }
    }

    fn connect(&self, rank: u32) -> RankLink {
        connect_link(&self.credentials(rank), Box::new(|| {})).unwrap()
    }

    fn address(&self) -> &str {
        &self.credentials.meeting_point.address
    }

    fn refusal(&self) -> String {
        self.refusals.recv_timeout(Duration::from_secs(30)).unwrap()
    }
}

#[test]
fn ranks_of_other_hosts_exchange_messages_of_every_size() {
    let leader = WaitingLeader::start(1..3);
    let (second, first) = (leader.connect(2), leader.connect(1));
    let admitted = leader.admitted.join().unwrap().unwrap();
    assert_eq!(admitted.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [1, 2]);
    let large: Vec<u8> = (0..5_000_000_u32).map(|at| (at % 251) as u8).collect();
    let echo = thread::spawn(move || {
        for link in [first, second] {
            let received = link.receive(7, RankMessageKind::Mean).unwrap();
            link.send(8, RankMessageKind::Part, &[&received[..1], &received[1..], b""]).unwrap();
            assert!(link.receive(9, RankMessageKind::Stop).unwrap().is_empty());
        }
    });
    for (_, link) in &admitted {
        link.send(7, RankMessageKind::Mean, &[&large]).unwrap();
        assert!(link.receive(8, RankMessageKind::Part).unwrap() == large);
        link.send(9, RankMessageKind::Stop, &[]).unwrap();
    }
    echo.join().unwrap();
}

#[test]
fn the_end_of_one_rank_is_noticed_by_the_other_although_it_reads_nothing() {
    let leader = WaitingLeader::start(1..2);
    let (ended, has_ended) = mpsc::channel();
    let link = connect_link(&leader.credentials(1), Box::new(move || ended.send(()).unwrap())).unwrap();
    drop(leader.admitted.join().unwrap().unwrap());
    has_ended.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(matches!(link.receive(1, RankMessageKind::Stop), Err(RankLinkError::Gone(_))));
}

#[test]
fn a_rank_without_the_token_or_of_another_attempt_is_refused_and_named() {
    let leader = WaitingLeader::start(1..2);
    let refused = |credentials: RankCredentials, reason: &str| {
        let link = connect_link(&credentials, Box::new(|| {})).unwrap();
        assert!(matches!(link.receive(0, RankMessageKind::Config), Err(RankLinkError::Gone(_))));
        let line = leader.refusal();
        assert!(line.contains("127.0.0.1:") && line.contains(reason), "{line}");
        assert!(!line.contains(&leader.credentials.meeting_point.token), "{line}");
    };
    let mut wrong = leader.credentials(1);
    wrong.meeting_point.token = "0".repeat(64);
    refused(wrong, "token");
    for other in [("k", 2, 3), ("j", 1, 3), ("j", 2, 4)] {
        let mut credentials = leader.credentials(1);
        let (job, attempt, epoch) = (other.0.to_owned(), other.1, other.2);
        credentials.identity = RankIdentity { job, attempt, epoch, rank: 1 };
        refused(credentials, "another attempt");
    }
    refused(leader.credentials(5), "rank 5");
    let _rank = leader.connect(1);
    assert_eq!(leader.admitted.join().unwrap().unwrap().len(), 1);
}

#[test]
fn each_rank_is_admitted_once() {
    let leader = WaitingLeader::start(1..3);
    let _first = leader.connect(1);
    let again = leader.connect(1);
    assert!(leader.refusal().contains("rank 1 has connected already"));
    assert!(matches!(again.receive(0, RankMessageKind::Config), Err(RankLinkError::Gone(_))));
    let _second = leader.connect(2);
    assert_eq!(leader.admitted.join().unwrap().unwrap().len(), 2);
}

#[test]
fn a_rank_sends_its_token_to_nobody_with_another_key() {
    let (leader, other) = (WaitingLeader::start(1..2), WaitingLeader::start(1..2));
    let mut misled = leader.credentials(1);
    misled.meeting_point.address = other.address().to_owned();
    let error = connect_link(&misled, Box::new(|| {})).unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    // Nor to a server without TLS.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    misled.meeting_point.address = plain.local_addr().unwrap().to_string();
    let answer = thread::spawn(move || {
        let (mut stream, _) = plain.accept().unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received);
        received
    });
    connect_link(&misled, Box::new(|| {})).unwrap_err();
    let received = answer.join().unwrap();
    let token = leader.credentials.meeting_point.token.as_bytes();
    assert!(!received.windows(token.len()).any(|window| window == token));
    for leader in [leader, other] {
        leader.stop.send(()).unwrap();
        assert!(leader.admitted.join().unwrap().is_err());
    }
}

#[test]
fn silent_and_hostile_connections_keep_no_rank_away() {
    let leader = WaitingLeader::start(1..2);
    let silent: Vec<TcpStream> =
        (0..3 * RANK_HANDSHAKES_MAX).map(|_| TcpStream::connect(leader.address()).unwrap()).collect();
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0; 70_000], &[0x16, 3, 1, 0xff, 0xff], b""] {
        let mut stream = TcpStream::connect(leader.address()).unwrap();
        let _ = stream.write_all(bytes);
    }
    let rank = leader.connect(1);
    let admitted = leader.admitted.join().unwrap().unwrap();
    admitted[0].1.send(0, RankMessageKind::Config, &[b"welcome"]).unwrap();
    assert_eq!(rank.receive(0, RankMessageKind::Config).unwrap(), b"welcome");
    // The port is closed, so a connection that was not admitted ends.
    let mut last = silent.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(!matches!(last.read(&mut [0]), Ok(1..)));
    assert!(TcpStream::connect(&leader.credentials.meeting_point.address).is_err());
}

#[test]
fn a_stop_request_ends_the_wait_for_ranks() {
    let leader = WaitingLeader::start(1..2);
    leader.stop.send(()).unwrap();
    let error = leader.admitted.join().unwrap().unwrap_err();
    assert!(error.contains("ends before"), "{error}");
}

#[test]
fn a_port_of_the_range_is_used_and_a_full_range_is_an_error() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let network = |ports: &str| RankNetwork { ports: Some(ports.parse().unwrap()), ..RankNetwork::default() };
    let error = RankListener::bind(&network(&port.to_string())).unwrap_err().to_string();
    assert!(error.contains(&port.to_string()), "{error}");
    drop(holder);
    let listener = RankListener::bind(&network(&port.to_string())).unwrap();
    assert_eq!(listener.meeting_point().address, format!("127.0.0.1:{port}"));
}

/// What a hostile client can send, with or without a valid handshake before it.
fn hostile_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300),
        // Records of a handshake with random content.
        (proptest::collection::vec(any::<u8>(), 0..200)).prop_map(|content| {
            let length = (content.len() as u16).to_be_bytes();
            [&[0x16, 3, 3, length[0], length[1]], content.as_slice()].concat()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_on_the_port_and_after_the_handshake_admit_nobody(bytes in hostile_bytes()) {
        let leader = WaitingLeader::start(1..2);
        let mut plain = TcpStream::connect(leader.address()).unwrap();
        let _ = plain.write_all(&bytes);
        drop(plain);
        // The key is not secret, so anybody can shake hands and send a first message.
        let digest = leader.credentials.meeting_point.key_sha256.parse().unwrap();
        let config = rank_key::client_config(digest).unwrap();
        let address: SocketAddr = leader.address().parse().unwrap();
        let mut connection = rustls::ClientConnection::new(config, address.ip().into()).unwrap();
        let mut socket = TcpStream::connect(address).unwrap();
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
        let _rank = leader.connect(1);
        prop_assert_eq!(leader.admitted.join().unwrap().unwrap().len(), 1);
    }
}
