package shop.orders;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.KafkaListener;

/** An application of Spring Boot: its listener appends the value of each record to a file. */
@SpringBootApplication
public class Orders {
    @Value("${orders.file}")
    private Path file;

    public static void main(String[] args) {
        SpringApplication.run(Orders.class, args);
    }

    @KafkaListener(topics = "${orders.topic}")
    synchronized void receive(String value) throws IOException {
        Files.write(file, List.of(value), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }
}
