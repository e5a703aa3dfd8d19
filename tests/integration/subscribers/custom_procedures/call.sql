/* CALL: every new value, and the old key; rows are never deleted, but closed. */
CREATE TABLE dbo.part_call (
    id int NOT NULL CONSTRAINT pk_part_call PRIMARY KEY,
    name nvarchar(40) NOT NULL,
    price decimal(10, 2) NULL,
    closed bit NOT NULL DEFAULT 0
)
GO

CREATE PROCEDURE dbo.part_insert @id int, @name nvarchar(40), @price decimal(10, 2)
AS
    SET NOCOUNT ON
    IF EXISTS (SELECT * FROM dbo.part_call WHERE id = @id)
        UPDATE dbo.part_call SET name = @name, price = @price, closed = 0 WHERE id = @id
    ELSE
        INSERT dbo.part_call (id, name, price) VALUES (@id, @name, @price)
GO

CREATE PROCEDURE dbo.part_update @id int, @name nvarchar(40), @price decimal(10, 2), @old_id int
AS
    SET NOCOUNT ON
    UPDATE dbo.part_call SET id = @id, name = @name, price = @price WHERE id = @old_id AND closed = 0
    IF @@ROWCOUNT = 0
        RAISERROR ('20598: no open part %d', 16, 1, @old_id)
GO

CREATE PROCEDURE dbo.part_close @old_id int
AS
    SET NOCOUNT ON
    UPDATE dbo.part_call SET closed = 1 WHERE id = @old_id
    PRINT 'closed ' + CONVERT(nvarchar(10), @old_id)
    RETURN @@ROWCOUNT
GO
