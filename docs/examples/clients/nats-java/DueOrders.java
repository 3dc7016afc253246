// Store three schedules with nats.java, receive what they fire, replace one and end another.
//
//     java -cp 'target/dependency/*' DueOrders.java nats://127.0.0.1:4222
//
// Without an argument the server is that of NATS_URL.

import static io.nats.client.support.NatsJetStreamConstants.NATS_SCHEDULER_HDR;
import static io.nats.client.support.NatsJetStreamConstants.NATS_SCHEDULE_HDR;
import static io.nats.client.support.NatsJetStreamConstants.NATS_SCHEDULE_NEXT_HDR;
import static io.nats.client.support.NatsJetStreamConstants.NATS_SCHEDULE_TARGET_HDR;
import static io.nats.client.support.NatsJetStreamConstants.NATS_SCHEDULE_TIME_ZONE_HDR;
import static java.nio.charset.StandardCharsets.UTF_8;

import io.nats.client.Connection;
import io.nats.client.ConsumerContext;
import io.nats.client.JetStream;
import io.nats.client.JetStreamManagement;
import io.nats.client.Message;
import io.nats.client.Nats;
import io.nats.client.Options;
import io.nats.client.PurgeOptions;
import io.nats.client.api.ConsumerConfiguration;
import io.nats.client.api.StreamConfiguration;
import io.nats.client.impl.Headers;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.TreeMap;

public class DueOrders {
    public static void main(String[] args) throws Exception {
        String url = args.length > 0 ? args[0] : System.getenv().getOrDefault("NATS_URL", Options.DEFAULT_URL);
        try (Connection nc = Nats.connect(url)) {
            run(nc);
        }
    }

    private static void run(Connection nc) throws Exception {
        JetStream js = nc.jetStream();
        JetStreamManagement jsm = nc.jetStreamManagement();

        // Both may be repeated: a stream or consumer with the same configuration is left as it is.
        jsm.addStream(StreamConfiguration.builder()
            .name("ORDERS").subjects("orders.>").allowMessageSchedules().build());
        ConsumerContext due = nc.getStreamContext("ORDERS").createOrUpdateConsumer(
            ConsumerConfiguration.builder().durable("due").filterSubject("orders.due").build());

        Instant soon = Instant.now().plusSeconds(2);
        js.publish("orders.schedules.reminder", schedule("@at " + soon), "remind of order 17".getBytes(UTF_8));
        js.publish("orders.schedules.pulse", schedule("@every 1s"), "pulse".getBytes(UTF_8));
        Headers report = schedule("*/2 * * * * *").put(NATS_SCHEDULE_TIME_ZONE_HDR, "Europe/Berlin");
        js.publish("orders.schedules.report", report, "open orders".getBytes(UTF_8));

        receive(due);

        // The last message on the subject of a schedule counts, so another one replaces it.
        Headers weekdays = schedule("0 30 9 * * mon-fri").put(NATS_SCHEDULE_TIME_ZONE_HDR, "Europe/Berlin");
        js.publish("orders.schedules.report", weekdays, "open orders".getBytes(UTF_8));
        System.out.println("orders.schedules.report is replaced");

        // To end a schedule, purge its subject.
        jsm.purgeStream("ORDERS", PurgeOptions.subject("orders.schedules.pulse"));
        System.out.println("orders.schedules.pulse is ended");
    }

    /** Give the headers of a schedule that fires on `orders.due`. */
    private static Headers schedule(String pattern) {
        return new Headers().put(NATS_SCHEDULE_HDR, pattern).put(NATS_SCHEDULE_TARGET_HDR, "orders.due");
    }

    /** Acknowledge fires until each schedule has fired, and say what fired. */
    private static void receive(ConsumerContext due) throws Exception {
        Map<String, String> fired = new TreeMap<>();
        while (fired.size() < 3) {
            Message message = due.next(Duration.ofSeconds(30));
            if (message == null) {
                throw new IllegalStateException("nothing fired in 30 s");
            }
            Headers headers = message.getHeaders();
            boolean isLast = headers.getFirst(NATS_SCHEDULE_NEXT_HDR).equals("purge");
            String follows = isLast ? "for the last time" : "and fires again";
            fired.put(headers.getFirst(NATS_SCHEDULER_HDR), new String(message.getData(), UTF_8) + ", " + follows);
            message.ack();
        }
        fired.forEach((schedule, what) -> System.out.println(schedule + " fired: " + what));
    }
}
