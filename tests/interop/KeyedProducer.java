import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Properties;

import kafka.javaapi.producer.Producer;
import kafka.javaapi.producer.ProducerData;
import kafka.producer.ProducerConfig;

/** Sends a message for each line of its input, which is its key and its value, by 0.7.2's producer: TOPIC NAME=VALUE… */
class KeyedProducer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("serializer.class", "kafka.serializer.StringEncoder");
        for (int i = 1; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        Producer<String, String> producer = new Producer<>(new ProducerConfig(properties));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", 2);
            producer.send(new ProducerData<>(arguments[0], parts[0], Collections.singletonList(parts[1])));
        }
        producer.close();
        System.exit(0); // ZooKeeper's threads would stay
    }
}
