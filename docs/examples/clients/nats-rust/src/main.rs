//! Store three schedules with nats.rs, receive what they fire, replace one and end another.
//!
//!     cargo run -- nats://127.0.0.1:4222
//!
//! Without an argument the server is that of NATS_URL.

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::{
    NATS_SCHEDULE, NATS_SCHEDULE_NEXT, NATS_SCHEDULE_TARGET, NATS_SCHEDULE_TIME_ZONE,
    NATS_SCHEDULER,
};
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{self, context::PublishError, stream};
use futures_util::TryStreamExt;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

#[tokio::main]
async fn main() -> Result<(), async_nats::Error> {
    let default = || env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_string());
    let client = async_nats::connect(env::args().nth(1).unwrap_or_else(default)).await?;
    let js = jetstream::new(client);

    // Both may be repeated: a stream or consumer with the same configuration is left as it is.
    let stream = js
        .create_stream(stream::Config {
            name: "ORDERS".to_string(),
            subjects: vec!["orders.>".to_string()],
            allow_message_schedules: true,
            ..Default::default()
        })
        .await?;
    let due = stream
        .create_consumer(pull::Config {
            durable_name: Some("due".to_string()),
            filter_subject: "orders.due".to_string(),
            ..Default::default()
        })
        .await?;

    let soon = (OffsetDateTime::now_utc() + Duration::from_secs(2)).format(&Rfc3339)?;
    let once = schedule(&format!("@at {soon}"));
    store(&js, "orders.schedules.reminder", once, "remind of order 17").await?;
    let each_second = schedule("@every 1s");
    store(&js, "orders.schedules.pulse", each_second, "pulse").await?;
    let mut report = schedule("*/2 * * * * *");
    report.insert(NATS_SCHEDULE_TIME_ZONE, "Europe/Berlin");
    store(&js, "orders.schedules.report", report, "open orders").await?;

    receive(&due).await?;

    // The last message on the subject of a schedule counts, so another one replaces it.
    let mut weekdays = schedule("0 30 9 * * mon-fri");
    weekdays.insert(NATS_SCHEDULE_TIME_ZONE, "Europe/Berlin");
    store(&js, "orders.schedules.report", weekdays, "open orders").await?;
    println!("orders.schedules.report is replaced");

    // To end a schedule, purge its subject.
    stream.purge().filter("orders.schedules.pulse").await?;
    println!("orders.schedules.pulse is ended");
    Ok(())
}

/// Give the headers of a schedule that fires on `orders.due`.
fn schedule(pattern: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_SCHEDULE, pattern);
    headers.insert(NATS_SCHEDULE_TARGET, "orders.due");
    headers
}

/// Publish a schedule: the first `await` sends it, the second waits for the server's answer.
async fn store(
    js: &jetstream::Context,
    subject: &'static str,
    headers: HeaderMap,
    body: &'static str,
) -> Result<(), PublishError> {
    let sent = js.publish_with_headers(subject, headers, body.into());
    sent.await?.await?;
    Ok(())
}

/// Acknowledge fires until each schedule has fired, and say what fired.
async fn receive(due: &PullConsumer) -> Result<(), async_nats::Error> {
    let mut fired = BTreeMap::new();
    while fired.len() < 3 {
        let mut messages = due
            .fetch()
            .max_messages(1)
            .expires(Duration::from_secs(30))
            .messages()
            .await?;
        let message = messages.try_next().await?.ok_or("nothing fired in 30 s")?;
        let headers = message.headers.as_ref().ok_or("a fire has headers")?;
        let is_last = headers
            .get(NATS_SCHEDULE_NEXT)
            .is_some_and(|next| next.as_str() == "purge");
        let follows = if is_last {
            "for the last time"
        } else {
            "and fires again"
        };
        let schedule = headers
            .get(NATS_SCHEDULER)
            .ok_or("a fire names its schedule")?
            .to_string();
        let body = String::from_utf8(message.payload.to_vec())?;
        fired.insert(schedule, format!("{body}, {follows}"));
        message.ack().await?;
    }
    for (schedule, what) in fired {
        println!("{schedule} fired: {what}");
    }
    Ok(())
}
